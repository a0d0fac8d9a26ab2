/* The module tensord._core. */
#include "client/python/core/core.h"

static int start(PyObject *module) {
    /* Types, the current device and the default connection exist once in a process. */
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(
            PyExc_ImportError,
            "tensord cannot be used in a subinterpreter: its arrays and connections belong to the main one");
        return -1;
    }
    if (PyModule_AddStringConstant(module, "__version__", td_version()) || error_init(module) || dtype_init(module) ||
        connection_init(module) || device_init(module) || stream_init(module) || array_init(module) ||
        label_init(module) || tapes_init(module) || function_init(module) || kernel_init(module) ||
        program_init(module) || saved_program_init(module) || PyModule_AddFunctions(module, upload_functions))
        return -1;
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, start}, {0}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "tensord._core",
    .m_doc = "Arrays on the devices of tensord daemons: what is written in C.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) {
    return PyModuleDef_Init(&definition);
}
