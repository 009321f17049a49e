/*
 * Notifications: events of locks, sent to people's chats or to programs, as `notify` in the configuration says.
 *
 *   server_on_event() ----------------+
 *   catch-up from the store's events -+--> filter --> queue of each target --> one call at a time --> sent
 *   scan of the locks (notify_scan.c) +                     ^                          |
 *                                                           +---- after a pause -------+ 5xx, 429, no answer
 *
 * Each target has a queue of its own with a limit; when it is full, the oldest notice is dropped. A target is called
 * with one notice at a time, in their order: chats allow about one message a second.
 *
 * The store is the journal of the queue. The file (notify_file.c) keeps for each target the last event before the
 * first undelivered one, and the next server continues after it: at least once. Notices that no store keeps, those of
 * the scan and of a store without events, are in the file themselves.
 *
 * Everything runs on the loop, except calls, scans, catch-up and the writing of the file, which are work (core/work.h).
 */
#ifndef SERVER_NOTIFY_NOTIFY_H
#define SERVER_NOTIFY_NOTIFY_H

#include "belay.h"

struct server;
struct notify;
struct notify_targets;

enum { NOTIFY_NAME_SIZE = 65 };

/* After webhooks_open(), whose rules for addresses hold here, too. */
enum belay_code notify_open(struct server *server, struct belay_error *err);

/* Read `notify` of a configuration. BELAY_CONFIG names the wrong setting. */
enum belay_code notify_targets_load(const struct server *server, const struct belay_config *config,
                                    struct notify_targets **out, struct belay_error *err);
void notify_targets_free(struct notify_targets *targets);
/* Use these from now on; takes them. A target whose URL stays keeps its queue. */
void notify_reload(struct notify *notify, struct notify_targets *targets);

/* On the loop. `notify` may be NULL. */
void notify_event(struct notify *notify, const struct belay_event *event);

/* The server stops: end the calls and write the file. What is left is for the next server. */
void notify_end(struct notify *notify);
void notify_free(struct notify *notify);

/* For /metrics. */
struct notify_counts {
    const char *name; /* of the target; borrowed */
    unsigned long long sent;
    unsigned long long failed;  /* calls that were not accepted */
    unsigned long long dropped; /* notices that are never sent */
    size_t queued;
};
/* False: there are not so many targets. */
bool notify_counts_at(const struct notify *notify, size_t i, struct notify_counts *out);

#endif
