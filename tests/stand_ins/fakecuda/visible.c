/* Which of the devices a process sees: what CUDA makes of CUDA_VISIBLE_DEVICES. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/stand_ins/fakecuda/fakecuda.h"

void fakecuda_uuid(int device, char text[FAKECUDA_UUID_MAX]) {
    snprintf(text, FAKECUDA_UUID_MAX, "GPU-00000000-0000-0000-0000-0000000000%02x", device + 1);
}

int fakecuda_parts(int device) {
    const char *text = getenv("FAKENVML_MIG");
    while (text && device-- > 0) {
        text = strchr(text, ',');
        text += text != NULL;
    }
    return text && isdigit((unsigned char)*text) ? atoi(text) : -1;
}

void fakecuda_part_uuid(int device, int part, char text[FAKECUDA_UUID_MAX]) {
    snprintf(text, FAKECUDA_UUID_MAX, "MIG-00000000-0000-0000-00%02x-0000000000%02x", device + 1, part + 1);
}

/* The device that a word names; -1: none. */
static int visible_word(const char *word, size_t length, int devices) {
    char uuid[FAKECUDA_UUID_MAX];
    for (int i = 0; i < devices; i++) {
        fakecuda_uuid(i, uuid);
        if (length > 4 && strncmp(uuid, word, length) == 0)
            return i;
        for (int part = 0; part < fakecuda_parts(i); part++) {
            fakecuda_part_uuid(i, part, uuid);
            if (strlen(uuid) == length && strncmp(uuid, word, length) == 0)
                return i;
        }
    }
    int number = length > 0 && isdigit((unsigned char)*word) ? atoi(word) : -1;
    return number < devices ? number : -1;
}

/* Of a device with parts CUDA shows one, and then nothing else. */
static bool visible_parted(int devices) {
    for (int i = 0; i < devices; i++)
        if (fakecuda_parts(i) >= 0)
            return true;
    return false;
}

int fakecuda_visible(int ordinal) {
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    int devices = (int)fakecuda_setting("FAKECUDA_DEVICES", 1), found = 0;
    if (!text)
        return ordinal >= 0 && ordinal < (visible_parted(devices) ? 1 : devices) ? ordinal : -1;
    for (; text; found++) {
        size_t length = strcspn(text, ",");
        int device = visible_word(text, length, devices);
        if (device < 0 || found == ordinal)
            return device;
        text = text[length] ? text + length + 1 : NULL;
    }
    return -1;
}
