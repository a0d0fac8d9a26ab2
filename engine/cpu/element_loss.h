/* Losses of elements: what their driver and their rows have in common. */
#pragma once

/* Sums of so many elements at a time, or more, are of arrays that the caches do not keep. */
enum { LOSS_ASKS = 1 << 14 };
