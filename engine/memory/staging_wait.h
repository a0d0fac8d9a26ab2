/* Waiting for staging memory (engine/memory/staging.h): the struct that is embedded in a transfer which may wait. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct ledger;
struct storage;

enum staging_way {
    STAGING_IN,    /* a client's chunks, to the device */
    STAGING_LINK,  /* another device's chunks, to the device */
    STAGING_OUT,   /* parts of values that have been computed, from the device */
    STAGING_EARLY, /* small values, as soon as they have been computed; never waits */
    STAGING_WAYS
};

struct staging_wait {
    void (*ready)(struct staging_wait *wait); /* staging_take() has an answer now. From staging_poll() */
    bool first;                               /* the transfer has no staging memory yet; for STAGING_LINK alone */
    /* private to staging.c */
    struct ledger *ledger;
    enum staging_way way;
    size_t bytes;
    struct storage *granted;
    bool answered;                         /* ready() is to be called, or has been */
    struct staging_wait *next, **previous; /* previous NULL: in no list */
};
