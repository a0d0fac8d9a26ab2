/* td_publish_all() and td_names_remove() for programs, whose captured tensors have names of their own: names that begin with `beneath`
 * are removed in the same step, unless the call binds them. NULL: none are. */
#pragma once

#include "client/tensord.h"

int names_publish(size_t count, td_tensor *const *tensors, const char *const *names, bool only_new,
                  const char *beneath);
int names_remove(td_device *device, const char *owner, const char *name, const char *beneath);
