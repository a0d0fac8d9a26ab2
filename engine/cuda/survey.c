#include "engine/cuda/survey.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* ---- the host's GPUs ---- */

static bool survey_uuid(const struct nvml *nvml, nvml_device device, char uuid[NVML_UUID_MAX]) {
    bool known = nvml->uuid(device, uuid, NVML_UUID_MAX) == NVML_OK;
    uuid[known ? NVML_UUID_MAX - 1 : 0] = 0;
    return known && *uuid;
}

static void survey_parts(const struct nvml *nvml, nvml_device device, struct survey *survey, struct survey_gpu *gpu) {
    unsigned most = 0;
    gpu->first = survey->n_parts;
    if (nvml->mig_most(device, &most) != NVML_OK)
        return;
    for (unsigned i = 0; i < most && survey->n_parts < SURVEY_PARTS_MAX; i++) {
        nvml_device part;
        if (nvml->mig_device(device, i, &part) == NVML_OK && survey_uuid(nvml, part, survey->parts[survey->n_parts]))
            survey->n_parts++;
    }
    gpu->count = survey->n_parts - gpu->first;
}

static bool survey_ask(const struct nvml *nvml, struct survey *survey) {
    unsigned count = 0;
    if (nvml->count(&count) != NVML_OK)
        return false;
    for (unsigned i = 0; i < count && i < SURVEY_GPUS_MAX; i++) {
        struct survey_gpu *gpu = &survey->gpus[survey->n_gpus++];
        unsigned present = 0, pending = 0;
        nvml_device device;
        *gpu = (struct survey_gpu){.uuid = ""};
        if (nvml->by_index(i, &device) != NVML_OK || !survey_uuid(nvml, device, gpu->uuid))
            continue;
        gpu->partitioned = nvml->mig_mode(device, &present, &pending) == NVML_OK && present != 0;
        if (gpu->partitioned)
            survey_parts(nvml, device, survey, gpu);
    }
    return true;
}

/* On a thread of its own, since any of the calls may hang. A result that comes too late is not used, and not freed. */
struct survey_task {
    struct survey survey;
    const struct nvml *nvml;
    bool done;
};

static void *survey_main(void *argument) {
    struct survey_task *task = argument;
    if (task->nvml->init() != NVML_OK)
        return NULL;
    task->done = survey_ask(task->nvml, &task->survey);
    task->nvml->shutdown();
    return NULL;
}

bool survey_take(struct survey *survey) {
    struct survey_task *task = calloc(1, sizeof *task);
    struct timespec end;
    pthread_t thread;
    if (task)
        task->nvml = nvml_load();
    if (!task || !task->nvml || pthread_create(&thread, NULL, survey_main, task)) {
        free(task);
        return false;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += SURVEY_MS / 1000;
    if (pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &end)) {
        pthread_detach(thread);
        return false;
    }
    bool done = task->done;
    if (done)
        *survey = task->survey;
    free(task);
    return done;
}

bool survey_partitioned(const struct survey *survey) {
    for (unsigned i = 0; i < survey->n_gpus; i++)
        if (survey->gpus[i].partitioned)
            return true;
    return false;
}

/* ---- the devices that a process sees ---- */

struct survey_list {
    struct device_place *places;
    unsigned count, capacity;
};

static void list_add(struct survey_list *list, const char *uuid) {
    struct device_place place = {.index = 0};
    snprintf(place.environment, sizeof place.environment, "CUDA_VISIBLE_DEVICES=%s", uuid);
    for (unsigned i = 0; i < list->count; i++)
        if (strcmp(list->places[i].environment, place.environment) == 0)
            return;
    if (list->count < list->capacity && *uuid)
        list->places[list->count++] = place;
}

static void list_add_gpu(struct survey_list *list, const struct survey *survey, const struct survey_gpu *gpu) {
    if (!gpu->partitioned)
        list_add(list, gpu->uuid);
    for (unsigned i = 0; i < gpu->count; i++)
        list_add(list, survey->parts[gpu->first + i]);
}

static bool uuid_begins(const char *uuid, const char *word, size_t length) {
    return strncasecmp(uuid, word, length) == 0;
}

/* Adds the devices that one word of CUDA_VISIBLE_DEVICES means. False: it means no device of this host. */
static bool list_add_word(struct survey_list *list, const struct survey *survey, const char *word, size_t length) {
    if (length > 0 && length < 6 && strspn(word, "0123456789") >= length) {
        unsigned long number = strtoul(word, NULL, 10);
        if (number < survey->n_gpus)
            list_add_gpu(list, survey, &survey->gpus[number]);
        return number < survey->n_gpus;
    }
    if (length < 5) /* a letter after "GPU-" or "MIG-" */
        return false;
    for (unsigned i = 0; i < survey->n_parts; i++)
        if (uuid_begins(survey->parts[i], word, length)) {
            list_add(list, survey->parts[i]);
            return true;
        }
    for (unsigned i = 0; i < survey->n_gpus; i++)
        if (uuid_begins(survey->gpus[i].uuid, word, length)) {
            list_add_gpu(list, survey, &survey->gpus[i]);
            return true;
        }
    return false;
}

unsigned survey_places(const struct survey *survey, const char *visible, struct device_place *places,
                       unsigned capacity) {
    struct survey_list list = {.places = places, .capacity = capacity};
    for (unsigned i = 0; !visible && i < survey->n_gpus; i++)
        list_add_gpu(&list, survey, &survey->gpus[i]);
    while (visible) {
        while (isspace((unsigned char)*visible))
            visible++;
        size_t length = strcspn(visible, ", \t\n");
        if (!list_add_word(&list, survey, visible, length))
            break;
        const char *comma = strchr(visible + length, ',');
        visible = comma ? comma + 1 : NULL;
    }
    return list.count;
}
