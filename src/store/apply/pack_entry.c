/* A commit as an entry of the journal. */
#include "store/apply/pack_internal.h"

#include <assert.h>
#include <stdlib.h>

#include "base/error.h"

/* Flags of the binary form only. What they stand for is absent from most entries, and from those of older versions. */
enum {
    SETS_CREDENTIAL = 1 << 16,
    SETS_CO_HOLDER = 1 << 17, /* the write is about one of several holders */
    DROPS_HOLDERS = 1 << 18,
    ALL_FLAGS = SETS_CREDENTIAL | SETS_CO_HOLDER | DROPS_HOLDERS,
};
enum {
    PUTS_TICKET = 1,
    PUTS_INTENT = 2,
    PUTS_CREDENTIAL = 4, /* the ticket has one */
    PUTS_MODE = 8,       /* the ticket is not for an exclusive lock, or is joint */
    PUTS_SHARED = 16,    /* the intent is of a shared lock */
    PUTS_INTENTS = 32    /* there are several, and each says whether it is of a shared lock */
};

static void put_values(struct packed_writer *w, unsigned set, const struct belay_record *values)
{
    if ((set & SETS_CO_HOLDER) != 0 && (set & BELAY_SET_ACQUIRED) != 0) {
        put_unsigned(w, (uint64_t)values->mode);
        put_int(w, values->slots);
    }
    if ((set & BELAY_SET_IDENTITY) != 0) {
        put_text(w, values->lock_id);
    }
    if ((set & SETS_CREDENTIAL) != 0) {
        put_text(w, values->acquired_by);
    }
    if ((set & BELAY_SET_OWNER) != 0) {
        put_text(w, values->owner);
        put_text(w, values->owner_name);
    }
    if ((set & BELAY_SET_METADATA) != 0) {
        put_meta(w, values->metadata, values->n_metadata);
    }
    if ((set & BELAY_SET_LIVENESS) != 0) {
        put_unsigned(w, values->durable);
        put_int(w, values->heartbeat_ms);
        put_int(w, values->stale_after_ms);
    }
    if ((set & BELAY_SET_LEASE) != 0) {
        put_int(w, values->ttl_ms);
    }
    if ((set & BELAY_SET_RELEASED) != 0) {
        put_unsigned(w, (uint64_t)values->outcome);
    }
}

static bool is_given(const char *credential)
{
    return credential != NULL && credential[0] != '\0';
}

static void put_new_ticket(struct packed_writer *w, const struct belay_put_ticket *ticket, unsigned puts)
{
    put_text(w, ticket->lock_id);
    put_text(w, ticket->key);
    put_text(w, ticket->owner);
    put_text(w, ticket->owner_name);
    put_int(w, ticket->since_unix_ms);
    put_int(w, ticket->ttl_ms);
    if ((puts & PUTS_CREDENTIAL) != 0) {
        put_text(w, ticket->acquired_by);
    }
    if ((puts & PUTS_MODE) != 0) {
        put_unsigned(w, (uint64_t)ticket->mode);
        put_int(w, ticket->slots);
        put_unsigned(w, ticket->joint);
    }
}

static unsigned flags_of_puts(const struct belay_write *write)
{
    const struct belay_put_ticket *ticket = write->put_ticket;
    unsigned puts = 0;

    if (ticket != NULL) {
        puts |= PUTS_TICKET | (is_given(ticket->acquired_by) ? PUTS_CREDENTIAL : 0U) |
                (ticket->mode != BELAY_EXCLUSIVE || ticket->joint ? PUTS_MODE : 0U);
    }
    if (write->n_put_intents == 1) {
        puts |= PUTS_INTENT | (write->put_intents[0].shared ? PUTS_SHARED : 0U);
    } else if (write->n_put_intents > 1) {
        puts |= PUTS_INTENTS;
    }
    return puts;
}

static void put_write(struct packed_writer *w, const struct belay_write *write)
{
    unsigned puts = flags_of_puts(write);
    unsigned set = write->set;

    if ((set & BELAY_SET_IDENTITY) != 0 && is_given(write->values->acquired_by)) {
        set |= SETS_CREDENTIAL;
    }
    set |= (write->co_holder ? SETS_CO_HOLDER : 0U) | (write->n_drop_holders > 0 ? DROPS_HOLDERS : 0U);
    put_text(w, write->key);
    put_unsigned(w, set);
    if (write->co_holder) {
        put_text(w, write->lock_id);
    }
    put_values(w, set, write->values);
    if (write->n_drop_holders > 0) {
        put_texts(w, write->drop_holders, write->n_drop_holders);
    }
    put_texts(w, write->drop_tickets, write->n_drop_tickets);
    put_texts(w, write->drop_intents, write->n_drop_intents);
    put_unsigned(w, puts);
    if (write->put_ticket != NULL) {
        put_new_ticket(w, write->put_ticket, puts);
    }
    if (write->n_put_intents > 1) {
        put_unsigned(w, write->n_put_intents);
    }
    for (size_t i = 0; i < write->n_put_intents; i++) {
        put_text(w, write->put_intents[i].lock_id);
        put_text(w, write->put_intents[i].key);
        put_int(w, write->put_intents[i].ttl_ms);
        if (write->n_put_intents > 1) {
            put_unsigned(w, write->put_intents[i].shared);
        }
    }
}

static void put_event(struct packed_writer *w, const struct belay_event *event)
{
    put_unsigned(w, (uint64_t)event->level);
    put_text(w, event->type);
    put_text(w, event->key);
    put_text(w, event->lock_id);
    put_unsigned(w, event->token);
    put_text(w, event->locked_by);
    put_text(w, event->locked_by_name);
    put_text(w, event->by);
    put_text(w, event->reason);
    put_int(w, event->duration_ms);
    put_meta(w, event->metadata, event->n_metadata);
}

void entry_pack(struct buf *frame, const struct journal_entry *entry)
{
    struct packed_writer w = { .to = frame };
    size_t start = frame->len;
    uint32_t len = 0;

    buf_add(frame, &len, ENTRY_HEAD);
    put_unsigned(&w, entry->number);
    put_int(&w, entry->now_ms);
    put_int(&w, entry->unix_ms);
    put_unsigned(&w, entry->n_writes);
    put_unsigned(&w, entry->n_events);
    put_unsigned(&w, entry->n_deletes);
    for (size_t i = 0; i < entry->n_writes; i++) {
        put_write(&w, &entry->writes[i]);
    }
    for (size_t i = 0; i < entry->n_events; i++) {
        put_event(&w, &entry->events[i]);
    }
    for (size_t i = 0; i < entry->n_deletes; i++) {
        put_text(&w, entry->deletes[i]);
    }
    if (!frame->failed) {
        len = (uint32_t)(frame->len - start - ENTRY_HEAD);
        memcpy(frame->data + start, &len, ENTRY_HEAD);
    }
}

enum belay_code batch_pack(struct batch_work *work, struct buf *scratch, struct buf *frame,
                           struct belay_error *err)
{
    struct belay_write few[BATCH_FEW];
    size_t n = work->batch->n_writes;
    struct belay_write *changes = n <= BATCH_FEW ? few : malloc(n * sizeof *changes);
    struct journal_entry entry = { .number = work->txn.next,
                                   .now_ms = work->txn.now_ms,
                                   .unix_ms = work->txn.unix_ms,
                                   .writes = changes,
                                   .events = work->events,
                                   .n_events = work->batch->n_events };
    bool ok = changes != NULL;

    for (size_t i = 0; ok && i < n; i++) {
        struct row *row = &work->rows[i];

        if (row->is_changed) {
            assert(row->packed == NULL);
            row->packed = record_pack_new(scratch, &row->record, &row->packed_len);
            ok = row->packed != NULL;
            changes[entry.n_writes++] = work->batch->writes[i];
        }
    }
    if (ok) {
        entry_pack(frame, &entry);
        ok = !frame->failed;
    }
    if (changes != few) {
        free(changes);
    }
    return ok ? BELAY_OK : error_no_memory(err);
}

/* Make room for `n` elements; the array may move. */
static bool room_grow(void *array, size_t size, size_t *cap, size_t n)
{
    void *grown;

    if (n <= *cap) {
        return true;
    }
    n = n < 2 * *cap ? 2 * *cap : n;
    grown = realloc(*(void **)array, n * size);
    if (grown == NULL) {
        return false;
    }
    *(void **)array = grown;
    *cap = n;
    return true;
}

void entry_room_release(struct entry_room *room)
{
    free(room->writes);
    free(room->values);
    free(room->tickets);
    free(room->intents);
    free(room->events);
    free(room->meta);
    free((void *)room->texts);
    memset(room, 0, sizeof *room);
}

/*
 * Lists of metadata, ids and intents go into arrays that may move while they grow, so
 * a list is an index into its array until all is read.
 */
struct lists {
    struct entry_room *room;
    size_t n_meta;
    size_t n_texts;
    size_t n_intents;
};

static size_t get_meta(struct packed_reader *r, struct lists *lists, size_t *out_n)
{
    size_t n = get_count(r);
    size_t from = lists->n_meta;

    if (!room_grow((void *)&lists->room->meta, sizeof *lists->room->meta, &lists->room->cap_meta, from + n)) {
        r->bad = true;
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        lists->room->meta[from + i].name = get_given(r);
        lists->room->meta[from + i].value = get_given(r);
    }
    lists->n_meta += n;
    *out_n = n;
    return from;
}

static size_t get_ids(struct packed_reader *r, struct lists *lists, size_t n)
{
    size_t from = lists->n_texts;

    if (!room_grow((void *)&lists->room->texts, sizeof *lists->room->texts, &lists->room->cap_texts,
                   from + n)) {
        r->bad = true;
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        lists->room->texts[from + i] = get_given(r);
    }
    lists->n_texts += n;
    return from;
}

/* An index while reading, an address afterwards. */
static void *as_index(size_t at)
{
    return (void *)(uintptr_t)at; /* NOLINT(performance-no-int-to-ptr) */
}

static void get_values(struct packed_reader *r, struct lists *lists, unsigned set,
                       struct belay_record *values)
{
    memset(values, 0, sizeof *values);
    if ((set & SETS_CO_HOLDER) != 0 && (set & BELAY_SET_ACQUIRED) != 0) {
        values->mode = get_mode(r);
        r->bad = r->bad || values->mode == BELAY_EXCLUSIVE;
        values->slots = (int)get_int(r);
    }
    if ((set & BELAY_SET_IDENTITY) != 0) {
        values->lock_id = (char *)get_given(r);
    }
    if ((set & SETS_CREDENTIAL) != 0) {
        values->acquired_by = (char *)get_given(r);
    }
    if ((set & BELAY_SET_OWNER) != 0) {
        values->owner = (char *)get_text(r);
        values->owner_name = (char *)get_text(r);
    }
    if ((set & BELAY_SET_METADATA) != 0) {
        values->metadata = as_index(get_meta(r, lists, &values->n_metadata));
    }
    if ((set & BELAY_SET_LIVENESS) != 0) {
        values->durable = get_unsigned(r) != 0;
        values->heartbeat_ms = get_int(r);
        values->stale_after_ms = get_int(r);
    }
    if ((set & BELAY_SET_LEASE) != 0) {
        values->ttl_ms = get_int(r);
    }
    if ((set & BELAY_SET_RELEASED) != 0) {
        values->outcome = (enum belay_outcome)get_unsigned(r);
    }
}

static struct belay_put_ticket get_new_ticket(struct packed_reader *r, uint64_t puts)
{
    struct belay_put_ticket ticket = { 0 };

    ticket.lock_id = get_given(r);
    ticket.key = get_given(r);
    ticket.owner = get_text(r);
    ticket.owner_name = get_text(r);
    ticket.since_unix_ms = get_int(r);
    ticket.ttl_ms = get_int(r);
    ticket.acquired_by = (puts & PUTS_CREDENTIAL) != 0 ? get_given(r) : NULL;
    if ((puts & PUTS_MODE) != 0) {
        ticket.mode = get_mode(r);
        ticket.slots = (int)get_int(r);
        ticket.joint = get_unsigned(r) != 0;
    }
    return ticket;
}

static void get_intents(struct packed_reader *r, struct lists *lists, struct belay_write *write,
                        uint64_t puts)
{
    size_t n = (puts & PUTS_INTENTS) != 0 ? get_count(r) : 1;
    size_t from = lists->n_intents;
    struct entry_room *room = lists->room;

    if (!room_grow((void *)&room->intents, sizeof *room->intents, &room->cap_intents, from + n)) {
        r->bad = true;
        return;
    }
    for (size_t i = from; i < from + n; i++) {
        room->intents[i].lock_id = get_given(r);
        room->intents[i].key = get_given(r);
        room->intents[i].ttl_ms = get_int(r);
        room->intents[i].shared =
            (puts & PUTS_INTENTS) != 0 ? get_unsigned(r) != 0 : (puts & PUTS_SHARED) != 0;
    }
    lists->n_intents += n;
    write->put_intents = as_index(from);
    write->n_put_intents = n;
}

static void get_write(struct packed_reader *r, struct lists *lists, size_t i)
{
    struct entry_room *room = lists->room;
    struct belay_write *write = &room->writes[i];
    unsigned set;
    uint64_t puts;

    memset(write, 0, sizeof *write);
    write->key = get_given(r);
    set = (unsigned)get_unsigned(r);
    write->co_holder = (set & SETS_CO_HOLDER) != 0;
    write->lock_id = write->co_holder ? get_text(r) : NULL;
    write->values = &room->values[i];
    get_values(r, lists, set, &room->values[i]);
    /* One is added with the id that the write sets. */
    r->bad =
        r->bad || (write->co_holder && (set & BELAY_SET_ACQUIRED) != 0 && write->values->lock_id == NULL);
    write->set = set & ~(unsigned)ALL_FLAGS;
    write->n_drop_holders = (set & DROPS_HOLDERS) != 0 ? get_count(r) : 0;
    write->drop_holders = as_index(get_ids(r, lists, write->n_drop_holders));
    write->n_drop_tickets = get_count(r);
    write->drop_tickets = as_index(get_ids(r, lists, write->n_drop_tickets));
    write->n_drop_intents = get_count(r);
    write->drop_intents = as_index(get_ids(r, lists, write->n_drop_intents));
    puts = get_unsigned(r);
    if ((puts & PUTS_TICKET) != 0) {
        room->tickets[i] = get_new_ticket(r, puts);
        write->put_ticket = &room->tickets[i];
    }
    if ((puts & (PUTS_INTENT | PUTS_INTENTS)) != 0) {
        get_intents(r, lists, write, puts);
    }
}

static void get_event(struct packed_reader *r, struct lists *lists, struct belay_event *event)
{
    memset(event, 0, sizeof *event);
    event->level = (enum belay_level)get_unsigned(r);
    event->type = get_given(r);
    event->key = get_given(r);
    event->lock_id = get_text(r);
    event->token = get_unsigned(r);
    event->locked_by = get_text(r);
    event->locked_by_name = get_text(r);
    event->by = get_text(r);
    event->reason = get_text(r);
    event->duration_ms = get_int(r);
    event->metadata = as_index(get_meta(r, lists, &event->n_metadata));
}

static bool room_reserve(struct entry_room *room, size_t n_writes, size_t n_events)
{
    size_t cap[3] = { room->cap_writes, room->cap_writes, room->cap_writes };
    bool ok = room_grow((void *)&room->writes, sizeof *room->writes, &cap[0], n_writes) &&
              room_grow((void *)&room->values, sizeof *room->values, &cap[1], n_writes) &&
              room_grow((void *)&room->tickets, sizeof *room->tickets, &cap[2], n_writes);

    room->cap_writes = ok ? cap[0] : room->cap_writes;
    return ok && room_grow((void *)&room->events, sizeof *room->events, &room->cap_events, n_events);
}

/* The array is NULL if all lists are empty. */
static const char **texts_at(const struct entry_room *room, size_t index)
{
    return room->texts == NULL ? NULL : room->texts + index;
}

static struct belay_meta *meta_at(const struct entry_room *room, size_t index)
{
    return room->meta == NULL ? NULL : room->meta + index;
}

/* Turn indexes into addresses, now that the arrays move no more. */
static void settle_lists(struct entry_room *room, size_t n_writes, size_t n_events)
{
    for (size_t i = 0; i < n_writes; i++) {
        struct belay_write *write = &room->writes[i];

        write->drop_holders = texts_at(room, (uintptr_t)write->drop_holders);
        write->drop_tickets = texts_at(room, (uintptr_t)write->drop_tickets);
        write->drop_intents = texts_at(room, (uintptr_t)write->drop_intents);
        write->put_intents = room->intents == NULL ? NULL : room->intents + (uintptr_t)write->put_intents;
        room->values[i].metadata = meta_at(room, (uintptr_t)room->values[i].metadata);
    }
    for (size_t i = 0; i < n_events; i++) {
        room->events[i].metadata = meta_at(room, (uintptr_t)room->events[i].metadata);
    }
}

uint64_t entry_last_packed(const void *data, size_t len)
{
    struct packed_reader r = { .at = data, .end = (const unsigned char *)data + len };
    struct journal_entry entry = { 0 };

    entry.number = get_unsigned(&r);
    (void)get_int(&r);
    (void)get_int(&r);
    (void)get_count(&r);
    entry.n_events = get_count(&r);
    return r.bad ? 0 : entry_last(&entry);
}

bool entry_unpack(const void *data, size_t len, struct entry_room *room, struct journal_entry *out_entry)
{
    struct packed_reader r = { .at = data, .end = (const unsigned char *)data + len };
    struct lists lists = { .room = room };
    struct journal_entry entry = { 0 };
    size_t deletes;

    entry.number = get_unsigned(&r);
    entry.now_ms = get_int(&r);
    entry.unix_ms = get_int(&r);
    entry.n_writes = get_count(&r);
    entry.n_events = get_count(&r);
    entry.n_deletes = get_count(&r);
    if (r.bad || !room_reserve(room, entry.n_writes, entry.n_events)) {
        return false;
    }
    for (size_t i = 0; i < entry.n_writes && !r.bad; i++) {
        get_write(&r, &lists, i);
    }
    for (size_t i = 0; i < entry.n_events && !r.bad; i++) {
        get_event(&r, &lists, &room->events[i]);
        room->events[i].id = entry.number + i;
        room->events[i].at_unix_ms = entry.unix_ms;
    }
    deletes = r.bad ? 0 : get_ids(&r, &lists, entry.n_deletes);
    if (r.bad || r.at != r.end) {
        return false;
    }
    settle_lists(room, entry.n_writes, entry.n_events);
    entry.writes = room->writes;
    entry.events = room->events;
    entry.deletes = texts_at(room, deletes);
    *out_entry = entry;
    return true;
}
