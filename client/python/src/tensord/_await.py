"""Waiting in asyncio."""
import asyncio
import os


async def wait(x):
    """Waits until the array x has been computed, while the loop runs other tasks; gives x, or raises its failure."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    descriptor = x._wait_fd()
    loop.add_reader(descriptor, lambda: done.done() or done.set_result(os.read(descriptor, 8)))
    try:
        status = int.from_bytes(await done, "little") - 1  # an eventfd's counter: x86 and ARM
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    if status:
        x.wait()  # it knows the failure
    return x
