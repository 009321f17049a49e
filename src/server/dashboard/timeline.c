/* Who held what when: the events of the last hours that begin or end a hold or a wait. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "server/core/server.h"
#include "json/json_write.h"

enum { HOURS_DEFAULT = 6, HOURS_MAX = 24, HOUR_MS = 3600000 };
enum { SCAN_MAX = 50000, EVENTS_MAX = 5000 }; /* of the newest: read, and answered */

/* The newest events so far, in a ring. */
struct timeline {
    const struct exchange *x;
    int64_t from_unix_ms;
    int64_t first_unix_ms; /* of the first that was read */
    uint64_t last_id;      /* of the last that was read, of any type */
    size_t n_read;
    size_t n;                   /* that fit; the ring has the last EVENTS_MAX of them */
    json_t *events[EVENTS_MAX]; /* owned */
};

static bool is_on_timeline(const char *type)
{
    static const char *const wanted[] = { "lock.acquired", "lock.adopted",    "lock.released", "lock.forced",
                                          "lock.lost",     "lock.taken_over", "wait.began",    "wait.ended" };

    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        if (strcmp(type, wanted[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* As in a history, without what a picture does not show. */
static json_t *brief(const struct belay_event *event)
{
    json_t *object = wire_event(event);

    (void)json_object_del(object, "level");
    (void)json_object_del(object, "lock_id");
    (void)json_object_del(object, "metadata");
    return object;
}

static bool add_to_timeline(void *context, const struct belay_event *event)
{
    struct timeline *timeline = context;
    json_t **place = &timeline->events[timeline->n % EVENTS_MAX];

    if (timeline->n_read++ == 0) {
        timeline->first_unix_ms = event->at_unix_ms;
    }
    timeline->last_id = event->id;
    if (event->at_unix_ms >= timeline->from_unix_ms && is_on_timeline(event->type) &&
        exchange_may_see(timeline->x, event->key)) {
        json_decref(*place);
        *place = brief(event);
        timeline->n++;
    }
    return true;
}

/* Oldest first; takes them out of the ring. */
static json_t *take_events(struct timeline *timeline)
{
    json_t *list = json_array();
    size_t first = timeline->n > EVENTS_MAX ? timeline->n - EVENTS_MAX : 0;

    for (size_t i = first; i < timeline->n; i++) {
        json_t **place = &timeline->events[i % EVENTS_MAX];

        (void)json_array_append_new(list, *place);
        *place = NULL;
    }
    return list;
}

static void reply_timeline(struct exchange *x, struct timeline *timeline)
{
    bool is_cut = timeline->n_read == SCAN_MAX && timeline->first_unix_ms > timeline->from_unix_ms;
    bool is_full = timeline->n > EVENTS_MAX;
    json_t *events = take_events(timeline);
    json_t *from = is_full ? json_incref(json_object_get(json_array_get(events, 0), "timestamp"))
                           : wire_time(is_cut ? timeline->first_unix_ms : timeline->from_unix_ms);

    reply(x, 200,
          json_pack("{s:o, s:o, s:o, s:o, s:b}", "now", wire_time(clock_unix_ms()), "from", from, "last_id",
                    json_integer((json_int_t)timeline->last_id), "events", events, "is_complete",
                    !is_cut && !is_full));
}

static void ask_timeline(struct exchange *x)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct timeline *timeline = calloc(1, sizeof *timeline);
    enum belay_code code = timeline == NULL ? error_no_memory(&err) : BELAY_OK;
    int64_t hours = HOURS_DEFAULT;
    int64_t after = 0;

    if (code == BELAY_OK) {
        code = query_number(x->query, "hours", 1, HOURS_MAX, &hours, &err);
    }
    if (code == BELAY_OK) {
        code = query_number(x->query, "after", 1, INT64_MAX, &after, &err);
    }
    if (code == BELAY_OK) {
        timeline->x = x;
        timeline->from_unix_ms = clock_unix_ms() - hours * HOUR_MS;
        timeline->last_id = (uint64_t)after;
        code =
            belay_events(x->server->client, NULL, (uint64_t)after, SCAN_MAX, add_to_timeline, timeline, &err);
    }
    if (code == BELAY_OK) {
        reply_timeline(x, timeline);
    } else {
        reply_error(x, &err);
    }
    for (size_t i = 0; timeline != NULL && i < EVENTS_MAX; i++) {
        json_decref(timeline->events[i]);
    }
    free(timeline);
    belay_error_release(&err);
}

void handle_timeline(struct exchange *x)
{
    exchange_read(x, WORK_SCAN, ask_timeline, NULL);
}
