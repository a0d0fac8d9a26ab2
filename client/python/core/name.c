/* Named tensors: values that outlive the program. */
#include "client/python/core/core.h"

#include <stdlib.h>

static PyObject *method_publish(PyObject *self, PyObject *name) {
    struct array *array = (struct array *)self;
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    td_tensor *tensor = text ? array_tensor(array) : NULL;
    int code;
    if (!tensor || wait_array(array)) /* Ctrl-C ends this wait; publishing itself is short */
        return NULL;
    array->pins++;
    array->device->connection->waits++;
    Py_BEGIN_ALLOW_THREADS;
    code = td_publish(tensor, text);
    Py_END_ALLOW_THREADS;
    array->device->connection->waits--;
    array->pins--;
    if (code)
        return device_raise(array->device);
    Py_RETURN_NONE;
}

PyMethodDef name_methods[] = {
    {"publish", method_publish, METH_O,
     "publish(name)\n--\n\nGives the value a name, by which other programs of the same user find it: "
     "device.lookup(name). It outlives this "
     "program. Blocks until the value has been computed."},
    {0},
};

static PyObject *device_lookup(PyObject *self, PyObject *name) {
    struct device *device = (struct device *)self;
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    td_device *handle = text ? device_open(device) : NULL;
    td_tensor *tensor;
    if (!handle)
        return NULL;
    device->connection->waits++;
    Py_BEGIN_ALLOW_THREADS;
    tensor = td_open(handle, text);
    Py_END_ALLOW_THREADS;
    device->connection->waits--;
    return array_wrap(device, tensor);
}

static PyObject *device_unpublish(PyObject *self, PyObject *name) {
    struct device *device = (struct device *)self;
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    td_device *handle = text ? device_open(device) : NULL;
    int code;
    if (!handle)
        return NULL;
    device->connection->waits++;
    Py_BEGIN_ALLOW_THREADS;
    code = td_unpublish(handle, text);
    Py_END_ALLOW_THREADS;
    device->connection->waits--;
    if (code)
        return device_raise(device);
    Py_RETURN_NONE;
}

/* A dict of the name's properties. */
static PyObject *name_info(const td_name_info *info, bool all) {
    PyObject *shape = PyTuple_New(info->rank);
    for (int i = 0; shape && i < info->rank; i++) {
        PyObject *extent = PyLong_FromLongLong(info->shape[i]);
        if (!extent || PyTuple_SetItem(shape, i, extent)) {
            Py_DECREF(shape);
            return NULL;
        }
    }
    if (!shape)
        return NULL;
    PyObject *dict = Py_BuildValue(
        "{s:s,s:O,s:N,s:K,s:d,s:O}", "name", info->name, "dtype", (PyObject *)dtype_of(info->dtype), "shape", shape,
        "nbytes", (unsigned long long)info->bytes, "age", info->age_s, "saved", info->unsaved ? Py_False : Py_True);
    if (!dict || !all)
        return dict;
    PyObject *owner = Py_BuildValue("{s:s,s:s,s:O}", "user", info->user, "owner", info->owner, "orphan",
                                    info->orphan ? Py_True : Py_False);
    if (!owner || PyDict_Update(dict, owner))
        Py_CLEAR(dict);
    Py_XDECREF(owner);
    return dict;
}

/* The names of the user, or of all users. */
static PyObject *names(struct device *device, bool all) {
    td_device *handle = device_open(device);
    td_name_info *infos = NULL;
    size_t count = 0, capacity = 0;
    int code = 0;
    if (!handle)
        return NULL;
    do {
        capacity = count + 16; /* others may publish meanwhile */
        td_name_info *more = realloc(infos, capacity * sizeof *infos);
        if (!more) {
            free(infos);
            return PyErr_NoMemory();
        }
        infos = more;
        device->connection->waits++;
        Py_BEGIN_ALLOW_THREADS;
        code = all ? td_names_all(handle, infos, capacity, &count) : td_names(handle, infos, capacity, &count);
        Py_END_ALLOW_THREADS;
        device->connection->waits--;
    } while (!code && count > capacity);
    PyObject *list = code ? device_raise(device) : PyList_New(0);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *info = name_info(&infos[i], all);
        if (!info || PyList_Append(list, info)) {
            Py_DECREF(list);
            list = NULL;
        }
        Py_XDECREF(info);
    }
    free(infos);
    return list;
}

static PyObject *device_names(PyObject *self, PyObject *unused) {
    (void)unused;
    return names((struct device *)self, false);
}

static PyObject *device_names_all(PyObject *self, PyObject *unused) {
    (void)unused;
    return names((struct device *)self, true);
}

static PyObject *device_names_move(PyObject *self, PyObject *arguments, PyObject *keywords) {
    static char *known[] = {"name", "new_name", "owner", "new_owner", NULL};
    struct device *device = (struct device *)self;
    const char *name, *new_name = NULL, *owner = NULL, *new_owner = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "z|z$zz:names_move", known, &name, &new_name, &owner,
                                     &new_owner))
        return NULL;
    td_device *handle = device_open(device);
    int code;
    if (!handle)
        return NULL;
    device->connection->waits++;
    Py_BEGIN_ALLOW_THREADS;
    code = td_names_move(handle, owner, name, new_owner, new_name);
    Py_END_ALLOW_THREADS;
    device->connection->waits--;
    if (code)
        return device_raise(device);
    Py_RETURN_NONE;
}

static PyObject *device_names_remove(PyObject *self, PyObject *arguments, PyObject *keywords) {
    static char *known[] = {"name", "owner", NULL};
    struct device *device = (struct device *)self;
    const char *name, *owner = NULL;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "z|$z:names_remove", known, &name, &owner))
        return NULL;
    td_device *handle = device_open(device);
    int code;
    if (!handle)
        return NULL;
    device->connection->waits++;
    Py_BEGIN_ALLOW_THREADS;
    code = td_names_remove(handle, owner, name);
    Py_END_ALLOW_THREADS;
    device->connection->waits--;
    if (code)
        return device_raise(device);
    Py_RETURN_NONE;
}

PyMethodDef name_device_methods[] = {
    {"lookup", device_lookup, METH_O,
     "lookup(name)\n--\n\nAn array with the value that the name has now: Array.publish(). Blocks for a round trip. "
     "UnknownNameError: there is "
     "no such name."},
    {"unpublish", device_unpublish, METH_O,
     "unpublish(name)\n--\n\nRemoves the name; arrays that lookup() made from it stay. Blocks for a round trip."},
    {"names", device_names, METH_NOARGS,
     "names()\n--\n\nThe user's names on the device: a list of dicts with name, dtype, shape, nbytes, age (seconds) "
     "and saved. Blocks."},
    {"names_all", device_names_all, METH_NOARGS,
     "names_all()\n--\n\nThe names of all users, by owner and name: dicts as those of names(), with user (for people), "
     "owner (for names_move() and names_remove()) and orphan (there is no such user any more). Blocks. DeniedError "
     "without the "
     "role admin."},
    {"names_move", (PyCFunction)(void (*)(void))device_names_move, METH_VARARGS | METH_KEYWORDS,
     "names_move(name, new_name=None, *, owner=None, new_owner=None)\n--\n\nRenames a named tensor, or gives it to "
     "another owner, in one step. Without new_name the name stays, without new_owner the owner. `owner` is a user's "
     "name or "
     "an owner of names_all(), by default the user; another one, and new_owner, take the role admin. None as the name: "
     "all "
     "names of the owner. Blocks for a round trip."},
    {"names_remove", (PyCFunction)(void (*)(void))device_names_remove, METH_VARARGS | METH_KEYWORDS,
     "names_remove(name, *, owner=None)\n--\n\nRemoves a name, or all (None), of the user or of another owner, as in "
     "names_move(). Blocks for a round trip."},
    {0},
};
