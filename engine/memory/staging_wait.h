/* Waiting for staging memory (engine/memory/staging.h), for those who embed it in what waits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct ledger;
struct storage;

enum staging_way {
    STAGING_IN,    /* a client's chunks, to the device */
    STAGING_LINK,  /* another device's */
    STAGING_OUT,   /* parts of values that are there, from the device */
    STAGING_EARLY, /* small values, as soon as they are there; never waits */
    STAGING_WAYS
};

struct staging_wait {
    void (*ready)(struct staging_wait *wait); /* staging_take() has an answer now. From staging_poll() */
    bool first;                               /* the transfer holds nothing yet: of STAGING_LINK */
    /* private to staging.c */
    struct ledger *ledger;
    enum staging_way way;
    size_t bytes;
    struct storage *granted;
    bool answered;                         /* it is to be told, or has been */
    struct staging_wait *next, **previous; /* previous NULL: in no list */
};
