"""Indexing: random index expressions give what NumPy gives, and assignments change what NumPy changes."""

import itertools
import random
import unittest

import tensord as td

from session import setUpModule  # noqa: F401 - starts the daemon

try:
    import numpy as np
except ImportError:
    np = None


def row_major(shape, dtype=None):
    size = 1
    for extent in shape:
        size *= extent
    return td.reshape(td.arange(size, dtype=dtype), shape)


class BasicIndices(unittest.TestCase):
    def setUp(self):
        self.x = row_major((3, 4))

    def test_an_integer_drops_its_axis(self):
        self.assertEqual(self.x[1].tolist(), [4, 5, 6, 7])
        self.assertEqual(self.x[-1, -2].item(), 10)

    def test_slices_have_steps_of_both_signs(self):
        self.assertEqual(self.x[::2, ::-1].tolist(), [[3, 2, 1, 0], [11, 10, 9, 8]])
        self.assertEqual(self.x[5:, 1].shape, (0,))
        self.assertEqual(self.x[2:0:-1, 0].tolist(), [8, 4])

    def test_steps_of_slices_are_as_large_as_pythons_integers(self):
        self.assertEqual(self.x[1 :: 2**70, -(2**70) : 2].tolist(), [[4, 5]])
        self.assertEqual(self.x[:: -(2**70), 3].tolist(), [11])
        x = td.arange(4)
        x[1 :: 2**70] = 9
        self.assertEqual(x.tolist(), [0, 9, 2, 3])

    def test_none_and_ellipsis(self):
        self.assertEqual(self.x[None, ..., 0].shape, (1, 3))
        self.assertEqual(self.x[..., None].shape, (3, 4, 1))
        self.assertEqual(td.asarray(5)[...].shape, ())
        self.assertEqual(td.asarray(5)[()].item(), 5)

    def test_an_index_out_of_range_is_refused_at_once(self):
        for key in (3, -4, (0, 4), (slice(None), -5)):
            with self.assertRaises(IndexError):
                self.x[key]

    def test_too_many_indices_and_other_types_are_refused(self):
        for key in ((0, 0, 0), (..., ...), 1.5, "a", td.asarray([1.0])):
            with self.assertRaises(IndexError):
                self.x[key]

    def test_iteration_and_length(self):
        self.assertEqual(len(self.x), 3)
        self.assertEqual([row.tolist() for row in self.x][2], [8, 9, 10, 11])
        with self.assertRaises(TypeError):
            len(td.asarray(1))
        with self.assertRaises(TypeError):
            iter(td.asarray(1))
        self.assertIn(7, self.x)
        self.assertNotIn(70, self.x)


class IntegerArrays(unittest.TestCase):
    def setUp(self):
        self.x = row_major((3, 4))

    def test_one_array_looks_up_slices(self):
        self.assertEqual(self.x[td.asarray([2, 0, -1])].tolist(), [[8, 9, 10, 11], [0, 1, 2, 3], [8, 9, 10, 11]])
        self.assertEqual(self.x[[0, 1], [1, 2]].tolist(), [1, 6])

    def test_arrays_broadcast(self):
        rows, columns = td.asarray([[0], [2]]), td.asarray([1, 3])
        self.assertEqual(self.x[rows, columns].tolist(), [[1, 3], [9, 11]])

    def test_unsigned_and_small_indices(self):
        self.assertEqual(self.x[td.asarray([2, 1], dtype=td.uint8), 0].tolist(), [8, 4])
        self.assertEqual(self.x[td.asarray([-1], dtype=td.int8)].tolist(), [[8, 9, 10, 11]])

    def test_an_index_out_of_range_fails_when_the_value_is_looked_at(self):
        for key in (td.asarray([3]), td.asarray([-4]), (td.asarray([0, 3]), td.asarray([0, 0])), (td.asarray([0]), td.asarray([-5]))):
            y = self.x[key]
            with self.assertRaises(IndexError):
                y.tolist()

    def test_assignment_out_of_range_fails_when_the_value_is_looked_at(self):
        for key in (td.asarray([3]), (td.asarray([0, -4]), td.asarray([0, 3])), (td.asarray([0]), td.asarray([4]))):
            y = self.x.at[key].set(0)
            with self.assertRaises(IndexError):
                y.tolist()


class Masks(unittest.TestCase):
    def test_a_mask_selects_elements_in_row_major_order(self):
        x = row_major((2, 3))
        self.assertEqual(x[x > 2].tolist(), [3, 4, 5])
        self.assertEqual(x[td.asarray([False, True])].tolist(), [[3, 4, 5]])
        self.assertEqual(x[:, td.asarray([True, False, True])].tolist(), [[0, 2], [3, 5]])

    def test_a_mask_of_rank_0_adds_an_axis(self):
        x = row_major((2, 3))
        self.assertEqual(x[True].shape, (1, 2, 3))
        self.assertEqual(x[td.asarray(False)].shape, (0, 2, 3))

    def test_a_mask_of_another_shape_is_refused(self):
        with self.assertRaises(IndexError):
            row_major((2, 3))[td.asarray([True, False, True])]

    def test_nothing_selected(self):
        x = row_major((2, 3))
        self.assertEqual(x[x > 99].shape, (0,))


class Updates(unittest.TestCase):
    def test_at_leaves_the_array_as_it_is(self):
        x = td.zeros(4)
        y = x.at[1:3].set(5)
        self.assertEqual(x.tolist(), [0, 0, 0, 0])
        self.assertEqual(y.tolist(), [0, 5, 5, 0])

    def test_add_counts_places_that_come_twice(self):
        x = td.zeros(3, dtype=td.int64)
        self.assertEqual(x.at[td.asarray([0, 0, 2])].add(td.asarray([1, 2, 3])).tolist(), [3, 0, 3])
        self.assertEqual(x.at[td.asarray([0, 0, 2])].subtract(1).tolist(), [-2, 0, -1])
        x = td.zeros(2, dtype=td.complex64)
        self.assertEqual(x.at[td.asarray([0, 0])].add(td.asarray([1j, 2])).tolist(), [2 + 1j, 0])

    def test_the_last_value_for_a_place_stays(self):
        self.assertEqual(td.zeros(3).at[td.asarray([1, 1])].set(td.asarray([4.0, 7.0])).tolist(), [0, 7, 0])

    def test_other_ways_to_change_a_part(self):
        x = td.asarray([1.0, 2.0, 3.0, 4.0])
        self.assertEqual(x.at[1:].multiply(2).tolist(), [1, 4, 6, 8])
        self.assertEqual(x.at[1:].divide(2).tolist(), [1, 1, 1.5, 2])
        self.assertEqual(x.at[1:].power(2).tolist(), [1, 4, 9, 16])
        self.assertEqual(x.at[1:].min(3).tolist(), [1, 2, 3, 3])
        self.assertEqual(x.at[1:].max(3).tolist(), [1, 3, 3, 4])
        self.assertEqual(x.at[x > 2].apply(td.negative).tolist(), [1, 2, -3, -4])
        self.assertEqual(x.at[x > 2].get().tolist(), [3, 4])

    def test_assignment_changes_this_object_alone(self):
        x = td.zeros((2, 2))
        view, same = x[0], x
        x[0] = 1
        self.assertEqual(x.tolist(), [[1, 1], [0, 0]])
        self.assertEqual(same.tolist(), [[1, 1], [0, 0]])
        self.assertEqual(view.tolist(), [0, 0])

    def assign_lines(self, device):
        x = td.zeros((512, 512), device=device)  # 1 MiB
        rows = td.asarray([7, 300, -1], device=device)
        for i in range(1, 512):
            x[i] = i
        x[0, 5:7] = 1.5
        x[1:4] = td.ones(512, device=device)
        x[:, 3] = 8
        x[rows] = -1
        x[400, 400] = 9
        for _ in range(50):
            x[x < 0] = -2.0
        self.assertEqual(x[0, 3:8].tolist(), [8, 0, 1.5, 1.5, 0])
        self.assertEqual([x[i, 4].item() for i in (2, 7, 8, 300, 510, 511)], [1, -2, 8, -2, 510, -2])
        self.assertEqual((x[400, 400].item(), x[400, 401].item()), (9, 400))
        return x

    def test_assignment_of_lines_writes_into_the_memory_that_the_array_has(self):
        """A session that may have half as much again as the array: a copy of it would be refused. Many assignments, as many a message of the client ends
        between two of them."""
        daemon = td.serve(flags=("--session-bytes", str(3 << 19)), default=False)
        for _ in range(20):
            x = None  # its memory is the next one's
            x = self.assign_lines(daemon.connection.device())
        view = x[1]
        x[1] = 0.0
        with self.assertRaises(td.LimitError):  # the view still needs the old elements, and there is no room for both
            x.tolist()
        self.assertEqual(view[:4].tolist(), [1, 1, 1, 8])
        daemon.close()

    def test_assignment_of_values_through_a_mask_writes_into_the_memory_that_the_array_has(self):
        """A copy of the array, which has a MiB, would be refused."""
        daemon = td.serve(flags=("--session-bytes", str(3 << 19)), default=False)
        device = daemon.connection.device()
        x = td.zeros((512, 512), device=device)
        rows = td.arange(512, device=device) % 100 == 7
        values = td.asarray([[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]], device=device)
        for _ in range(20):
            x[rows] = values
        self.assertEqual([x[i, 5].item() for i in (6, 7, 107, 307, 507, 508)], [0, 1, 2, 4, 6, 0])
        x = None
        x = td.zeros((256, 16, 16), dtype=td.complex128, device=device)
        few = td.zeros((256, 16), dtype=td.bool, device=device)
        few[3, 5] = few[200, 0] = True
        for _ in range(20):
            x[few] = td.asarray([[1j], [2.0]], device=device)
        self.assertEqual([x[i].item() for i in ((3, 5, 0), (3, 5, 15), (200, 0, 9), (200, 1, 0), (3, 4, 15))], [1j, 1j, 2, 0, 0])
        daemon.close()

    def test_assignment_through_a_mask(self):
        x = row_major((2, 3))
        x[x > 3] = -1
        self.assertEqual(x.tolist(), [[0, 1, 2], [3, -1, -1]])
        x[x < 0] = td.asarray([7, 8])
        self.assertEqual(x.tolist(), [[0, 1, 2], [3, 7, 8]])
        x[td.asarray([False, True])] = 0
        self.assertEqual(x.tolist(), [[0, 1, 2], [0, 0, 0]])
        view = x[1]
        x[td.asarray([True, True])] = td.asarray([[1, 2, 3], [4, 5, 6]])
        self.assertEqual((x.tolist(), view.tolist()), ([[1, 2, 3], [4, 5, 6]], [0, 0, 0]))
        x[td.asarray([[False, True, False], [False, False, False]]),] = td.asarray([9])
        x[td.asarray([[True, False, True], [False, True, False]])] = td.asarray([7, 8, 9])
        self.assertEqual(x.tolist(), [[7, 9, 8], [4, 9, 6]])
        x[td.zeros((2, 3), dtype=td.bool)] = td.zeros(0, dtype=x.dtype)
        with self.assertRaises(ValueError):
            x[x > 0] = td.asarray([1, 2])
        self.assertEqual(x.tolist(), [[7, 9, 8], [4, 9, 6]])

    def test_a_value_of_a_higher_kind_is_refused(self):
        for x, value in (
            (td.zeros(2, dtype=td.int32), 1.5),
            (td.zeros(2), 1j),
            (td.zeros(2, dtype=td.bool), 1),
            (td.zeros(2, dtype=td.int32), td.zeros(2)),
        ):
            with self.assertRaises(TypeError):
                x[0] = value

    def test_a_value_that_does_not_broadcast_is_refused(self):
        x = td.zeros((2, 3))
        with self.assertRaises(ValueError):
            x[0] = td.zeros(2)

    def test_every_dtype_is_set(self):
        for name in "bool int8 uint64 float16 bfloat16 float64 float8_e5m2 complex128".split():
            x = td.zeros(3, dtype=getattr(td, name))
            x[1] = True if name == "bool" else 1
            self.assertEqual(td.astype(x, td.complex128 if name == "complex128" else td.float64).tolist(), [0, 1, 0], name)


@unittest.skipUnless(np, "NumPy is not installed")
class LikeNumPy(unittest.TestCase):
    """Random keys for random shapes."""

    def key(self, choose, shape):
        items, axis = [], 0
        kinds = choose.choice(("basic", "basic", "arrays", "arrays", "mask"))
        lookup = tuple(choose.choice((1, 3)) for _ in range(choose.randint(0, 2)))
        while axis < len(shape) and choose.random() < 0.85:
            extent = shape[axis]
            kind = choose.choice({"basic": "isn", "arrays": "isnaa", "mask": "ismm"}[kinds])
            if kind == "n" and sum(item is None for item in items) < 2:
                items.append(None)
                continue
            if kind == "i" and extent:
                items.append(choose.randrange(-extent, extent))
            elif kind == "a" and extent:
                wanted = tuple(choose.choice((1, one)) for one in lookup)
                items.append(np.asarray([choose.randrange(-extent, extent) for _ in range(int(np.prod(wanted)))], dtype=np.int64).reshape(wanted))
            elif kind == "m" and not any(isinstance(item, np.ndarray) for item in items):
                rank = choose.randint(1, len(shape) - axis)
                part = shape[axis : axis + rank]
                items.append(np.asarray([choose.random() < 0.5 for _ in range(int(np.prod(part)))], dtype=bool).reshape(part))
                axis += rank - 1
            else:
                bounds = [choose.choice((None, choose.randint(-extent - 2, extent + 2))) for _ in range(2)]
                items.append(slice(*bounds, choose.choice((None, 1, 2, -1, -3))))
            axis += 1
        if choose.random() < 0.3:
            items.insert(choose.randint(0, len(items)) if axis == len(shape) else len(items), Ellipsis)
        return items[0] if len(items) == 1 and choose.random() < 0.5 else tuple(items)

    def keys(self, seed, count):
        choose = random.Random(seed)
        for _ in range(count):
            shape = tuple(choose.choice((0, 1, 2, 3, 4)) for _ in range(choose.randint(0, 4)))
            yield shape, self.key(choose, shape), choose

    def ours(self, key):
        if isinstance(key, tuple):
            return tuple(self.ours(item) for item in key)
        return td.asarray(key) if isinstance(key, np.ndarray) else key

    def test_reading(self):
        for shape, key, _ in self.keys(1, 600):
            host = np.arange(int(np.prod(shape))).reshape(shape)
            with self.subTest(shape=shape, key=key):
                expected = host[key]
                result = td.asarray(host)[self.ours(key)]
                self.assertEqual(result.shape, expected.shape)
                self.assertEqual(result.tolist(), expected.tolist())

    def test_assignment(self):
        for shape, key, choose in self.keys(2, 400):
            host = np.zeros(shape, dtype=np.int64)
            part = host[key].shape
            if len(part) > 6:
                continue
            value = np.arange(1, int(np.prod(part)) + 1).reshape(part) if choose.random() < 0.7 else np.asarray(7)
            with self.subTest(shape=shape, key=key, value=value):
                x = td.asarray(host)
                x[self.ours(key)] = td.asarray(value)
                host[key] = value
                self.assertEqual(x.tolist(), host.tolist())

    def test_sums_into_places(self):
        for shape, key, _ in self.keys(3, 200):
            host = np.ones(shape)
            with self.subTest(shape=shape, key=key):
                expected = host.copy()
                np.add.at(expected, key, 2.0)
                self.assertEqual(td.asarray(host).at[self.ours(key)].add(2.0).tolist(), expected.tolist())


class Take(unittest.TestCase):
    def test_take_and_take_along_axis(self):
        x = row_major((2, 3))
        self.assertEqual(td.take(x, td.asarray([2, -3]), axis=1).tolist(), [[2, 0], [5, 3]])
        self.assertEqual(td.take(x[0], td.asarray([1])).tolist(), [1])
        self.assertEqual(td.take_along_axis(x, td.asarray([[-1], [0]])).tolist(), [[2], [3]])
        with self.assertRaises(ValueError):
            td.take(x, td.asarray([0]))

    def test_every_pair_of_index_kinds(self):
        x = row_major((2, 2, 2))
        kinds = (0, slice(None), td.asarray([1, 0]), None, Ellipsis)
        for pair in itertools.product(kinds, repeat=2):
            if pair.count(Ellipsis) < 2:
                self.assertLessEqual(x[pair].ndim, 5)


if __name__ == "__main__":
    unittest.main()
