/*
 * The conformance suite of the public interface (include/belay.h).
 *
 * The suite of the store port (support/suite.h) is for what stands below the
 * locks; a server stands above them, so it is held to these cases instead. They
 * are the same for every URL that belay_client_open() takes. Time is real: a
 * case waits for what is to come, and never for a while.
 */
#ifndef SUPPORT_API_KIT_H
#define SUPPORT_API_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "belay.h"

enum { API_PATIENCE_MS = 60000, API_SHORT_MS = 1000, API_LONG_MS = 600000 };

/* Where the locks are. */
struct api_place {
    const char *url;
    bool keeps_events; /* history and watch have events */
    bool is_local;     /* the store is on this machine, and not behind a URL of a network */
};

/* One case: two clients, and keys of its own. */
struct api {
    const struct api_place *place;
    struct belay_client *client;
    struct belay_client *rival;
    struct belay_error err;
    char key[BELAY_KEY_MAX + 1];
};

/* For cmocka: *state is the struct api_place before, and the struct api after. */
int api_begin(void **state);
int api_end(void **state);

/* A key of this case: its own name, then `more`. Good until the next call by this thread. */
const char *api_key(const struct api *api, const char *more);

struct belay_client *api_open(const struct api *api);

/* Calls that must succeed. The caller frees the lock, and the info. */
struct belay_lock *api_take(struct belay_client *client, const char *key, const char *lock_id,
                            int64_t ttl_ms);
/* One whose lease has ended. A store whose clock may be wrong by a little lets that much pass first. */
struct belay_lock *api_take_over(struct belay_client *client, const char *key, const char *lock_id);
struct belay_info *api_look(struct belay_client *client, const char *key);

/* True once `is_so` is; false when patience is at its end. */
bool api_await(bool (*is_so)(void *context), void *context);

/* Until so many wait for the key, and until its lease has ended. */
void api_await_line(struct belay_client *client, const char *key, size_t n);
void api_await_expiry(struct belay_client *client, const char *key);

/* An acquire in a thread of its own. */
struct api_waiter {
    struct belay_client *client; /* borrowed */
    const char *key;             /* borrowed */
    struct belay_lock_options options;
    struct belay_lock *lock; /* owned */
    enum belay_code code;
    unsigned long thread;
};
void api_waiter_start(struct api_waiter *waiter);
void api_waiter_join(struct api_waiter *waiter);

extern const struct CMUnitTest api_holding[];
extern const size_t n_api_holding;
extern const struct CMUnitTest api_waiting[];
extern const size_t n_api_waiting;
extern const struct CMUnitTest api_reading[];
extern const size_t n_api_reading;

#define API_CASE(name)                                                                                       \
    {                                                                                                        \
#name, name, api_begin, api_end, NULL                                                                \
    }

#endif
