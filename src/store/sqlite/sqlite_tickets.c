/*
 * The queue of a row, as JSON (sqlite_json.c). It is read and written several times at every
 * hand-over, so the form in which it is written here is read without a JSON library, and its
 * strings go to the record's block of text. Everything else that is JSON is read with one.
 */
#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"
#include "store/sqlite/sqlite_internal.h"

enum { QUEUE_MAX = 1 << 29, DIGITS_MAX = 18 }; /* bytes; decimal digits that fit into 64 bits */

/* ---- without a library ---- */

struct queue_scan {
    const char *at;
    const char *end; /* a '\0' */
    char *room;      /* for strings; not less than there is to read */
};

static bool scan_literal(struct queue_scan *scan, const char *text)
{
    size_t n = strlen(text);
    bool is_there = strncmp(scan->at, text, n) == 0;

    scan->at += is_there ? n : 0;
    return is_there;
}

/* Plain ASCII without escapes. */
static bool scan_text(struct queue_scan *scan, char **out_text)
{
    size_t n;

    if (!scan_literal(scan, "\"")) {
        return false;
    }
    n = text_plain(scan->at, (size_t)(scan->end - scan->at));
    *out_text = memcpy(scan->room, scan->at, n);
    scan->room[n] = '\0';
    scan->room += n + 1;
    scan->at += n;
    return scan_literal(scan, "\"");
}

static bool scan_integer(struct queue_scan *scan, int64_t *out_number)
{
    int64_t value = 0;
    size_t n = 0;

    for (; n < DIGITS_MAX && scan->at[n] >= '0' && scan->at[n] <= '9'; n++) {
        value = value * 10 + (scan->at[n] - '0');
    }
    scan->at += n;
    *out_number = value;
    return n > 0;
}

static bool scan_bool(struct queue_scan *scan, bool *out_value)
{
    *out_value = scan_literal(scan, "true");
    return *out_value || scan_literal(scan, "false");
}

static bool scan_kind(struct queue_scan *scan, struct belay_ticket *ticket)
{
    int64_t mode = BELAY_EXCLUSIVE;
    int64_t slots = 0;
    bool good = true;

    if (scan_literal(scan, ",")) {
        good = scan_integer(scan, &mode) && scan_literal(scan, ",") && scan_integer(scan, &slots) &&
               scan_literal(scan, ",") && scan_bool(scan, &ticket->joint);
    }
    ticket->mode = (enum belay_mode)mode;
    ticket->slots = (int)slots;
    return good && mode >= BELAY_EXCLUSIVE && mode <= BELAY_SLOTS;
}

static bool scan_ticket(struct queue_scan *scan, struct belay_ticket *ticket, bool *has_liveness)
{
    int64_t seq = 0;
    bool good =
        scan_literal(scan, "[") && scan_text(scan, &ticket->lock_id) && scan_literal(scan, ",") &&
        scan_text(scan, &ticket->key) && scan_literal(scan, ",") && scan_text(scan, &ticket->owner) &&
        scan_literal(scan, ",") && scan_text(scan, &ticket->owner_name) && scan_literal(scan, ",") &&
        scan_integer(scan, &seq) && scan_literal(scan, ",") && scan_integer(scan, &ticket->since_unix_ms) &&
        scan_literal(scan, ",") && scan_integer(scan, &ticket->expires_ms) && scan_literal(scan, ",") &&
        scan_bool(scan, has_liveness) && scan_literal(scan, ",") &&
        (scan_literal(scan, "null") || scan_text(scan, &ticket->acquired_by)) && scan_kind(scan, ticket);

    ticket->seq = (uint64_t)seq;
    ticket->packed = true;
    return good && scan_literal(scan, "]");
}

static size_t count_most(const char *text)
{
    size_t n = 0;

    for (; (text = strchr(text, '[')) != NULL; text++) {
        n++;
    }
    return n;
}

static bool make_lists(struct row *row, size_t n)
{
    row->record.tickets = calloc(n, sizeof *row->record.tickets);
    row->has_liveness = calloc(n, sizeof *row->has_liveness);
    return row->record.tickets != NULL && row->has_liveness != NULL;
}

/* False: the queue is in another form, or there is no memory; nothing was read. */
static bool scan_tickets(const char *text, size_t len, struct row *row)
{
    struct belay_record *record = &row->record;
    struct queue_scan scan = { text, text + len, record->text + record->text_size - (len + 1) };
    size_t n = 0;
    bool good = make_lists(row, count_most(text)) && scan_literal(&scan, "[");

    do {
        good = good && scan_ticket(&scan, &record->tickets[n], &row->has_liveness[n]);
        n++;
    } while (good && scan_literal(&scan, ","));
    if (good && scan_literal(&scan, "]") && scan.at == scan.end) {
        record->n_tickets = n;
        return true;
    }
    free(record->tickets);
    free(row->has_liveness);
    record->tickets = NULL;
    row->has_liveness = NULL;
    return false;
}

/* ---- with one ---- */

static bool ticket_from_json(json_t *item, struct belay_ticket *ticket, bool *has_liveness)
{
    const char *id, *key, *owner, *name;
    const char *credential = json_string_value(json_array_get(item, 8));
    json_int_t seq, since, expires;
    json_int_t mode = json_integer_value(json_array_get(item, 9));
    int has_lock;

    if (mode < BELAY_EXCLUSIVE || mode > BELAY_SLOTS ||
        json_unpack(item, "[s, s, s, s, I, I, I, b]", &id, &key, &owner, &name, &seq, &since, &expires,
                    &has_lock) != 0) {
        return false;
    }
    ticket->lock_id = strdup(id);
    ticket->key = strdup(key);
    ticket->owner = strdup(owner);
    ticket->owner_name = strdup(name);
    ticket->acquired_by = credential == NULL ? NULL : strdup(credential);
    ticket->seq = (uint64_t)seq;
    ticket->since_unix_ms = since;
    ticket->expires_ms = expires;
    ticket->mode = (enum belay_mode)mode;
    ticket->slots = (int)json_integer_value(json_array_get(item, 10));
    ticket->joint = json_is_true(json_array_get(item, 11));
    *has_liveness = has_lock != 0;
    return ticket->lock_id != NULL && ticket->key != NULL && ticket->owner != NULL &&
           ticket->owner_name != NULL && (credential == NULL || ticket->acquired_by != NULL);
}

bool tickets_read(const char *text, struct row *row)
{
    size_t len = strlen(text);
    json_t *list;
    size_t n;
    bool good;

    assert(row->record.text_size > len);
    if (scan_tickets(text, len, row)) {
        return true;
    }
    list = json_loads(text, 0, NULL);
    n = json_array_size(list);
    good = list != NULL && (n == 0 || make_lists(row, n));
    for (size_t i = 0; good && i < n; i++) {
        row->record.n_tickets = i + 1;
        good = ticket_from_json(json_array_get(list, i), &row->record.tickets[i], &row->has_liveness[i]);
    }
    json_decref(list);
    return good;
}

/* ---- writing ---- */

static bool is_utf8(const char *text, size_t len)
{
    size_t at = text_plain(text, len);
    size_t n = 1;

    for (; n > 0 && at < len; at += n) {
        uint32_t point;

        n = utf8_read(text + at, len - at, &point);
    }
    return n > 0;
}

static void add_json_text(struct buf *out, const char *text)
{
    size_t len = text == NULL ? 0 : strlen(text);

    if (text == NULL) {
        buf_adds(out, "null");
    } else if (is_utf8(text, len)) {
        json_text_add(out, text, len, JSON_TEXT_SHORTEST);
    } else {
        out->failed = true;
    }
}

static void add_ticket(struct buf *out, const struct belay_ticket *ticket, bool has_liveness)
{
    const char *const texts[] = { ticket->lock_id, ticket->key, ticket->owner, ticket->owner_name };
    const int64_t numbers[] = { (int64_t)ticket->seq, ticket->since_unix_ms, ticket->expires_ms };

    buf_adds(out, "[");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        add_json_text(out, texts[i]);
        buf_adds(out, ",");
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        buf_add_number(out, numbers[i]);
        buf_adds(out, ",");
    }
    buf_adds(out, has_liveness ? "true," : "false,");
    add_json_text(out, ticket->acquired_by);
    if (ticket->mode != BELAY_EXCLUSIVE || ticket->joint) {
        buf_addf(out, ",%d,%d,%s", (int)ticket->mode, ticket->slots, ticket->joint ? "true" : "false");
    }
    buf_adds(out, "]");
}

enum belay_code tickets_write(const struct row *row, char **out_text, struct belay_error *err)
{
    struct buf out = BUF_INIT(QUEUE_MAX);

    if (row->record.n_tickets == 0) {
        *out_text = NULL;
        return BELAY_OK;
    }
    for (size_t i = 0; i < row->record.n_tickets; i++) {
        buf_adds(&out, i == 0 ? "[" : ",");
        add_ticket(&out, &row->record.tickets[i], row->has_liveness[i]);
    }
    buf_adds(&out, "]");
    *out_text = buf_take(&out);
    buf_release(&out);
    return *out_text != NULL
               ? BELAY_OK
               : error_set(err, BELAY_INVALID,
                           "the owner of a waiter must be valid UTF-8 (or there is no memory left)");
}
