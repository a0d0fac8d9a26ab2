/* Names, as programs need them: with others beneath, which change in the same step (`beneath` in Publish and RemoveName;
 * NULL: none do). Otherwise as td_publish_all() and td_names_remove(). */
#pragma once

#include "client/tensord.h"

int names_publish(size_t count, td_tensor *const *tensors, const char *const *names, bool only_new,
                  const char *beneath);
int names_remove(td_device *device, const char *owner, const char *name, const char *beneath);
