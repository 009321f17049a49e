/*
 * The queue of a record in memory. A lock with a long queue is read and written at every
 * commit: so a ticket is an image of fixed size, and its strings are one piece of text.
 *
 *     n | image | image | ... | text of the first | text of the second | ...
 *
 * A reader borrows the strings in place without looking at them. A writer that has read the
 * queue before copies the texts of neighbours in one piece, without measuring them.
 */
#include <stdlib.h>

#include "store/apply/pack_internal.h"

/* There is no such string. For `key`: it is the record's own key, as usual. */
#define NOWHERE UINT32_MAX

/* Packed: without padding, so that equal queues have equal bytes, and readable at any address. */
struct __attribute__((packed)) image {
    uint64_t seq;
    int64_t since_unix_ms;
    int64_t expires_ms;
    int32_t slots;
    uint32_t mode;
    uint32_t joint;
    uint32_t
        size; /* of its text: lock_id, then the strings below that exist, in this order, at these offsets */
    uint32_t owner;
    uint32_t owner_name;
    uint32_t acquired_by;
    uint32_t key;
};

/* ---- packing ---- */

static bool is_own_key(const struct belay_record *record, const struct belay_ticket *ticket)
{
    return ticket->key == record->key || (record->key != NULL && strcmp(ticket->key, record->key) == 0);
}

static uint32_t place_string(const char *text, uint32_t *size)
{
    uint32_t at = *size;

    *size += (uint32_t)strlen(text) + 1;
    return at;
}

/* The offsets for a ticket whose strings are not one block yet. */
static void image_measure(const struct belay_record *record, const struct belay_ticket *ticket,
                          struct image *image)
{
    uint32_t size = 0;

    (void)place_string(ticket->lock_id, &size);
    image->owner = place_string(ticket->owner, &size);
    image->owner_name = place_string(ticket->owner_name, &size);
    image->acquired_by = ticket->acquired_by == NULL ? NOWHERE : place_string(ticket->acquired_by, &size);
    image->key = is_own_key(record, ticket) ? NOWHERE : place_string(ticket->key, &size);
    image->size = size;
}

static uint32_t offset_of(const struct belay_ticket *ticket, const char *text)
{
    return (uint32_t)(text - ticket->lock_id);
}

static void image_write(const struct belay_record *record, const struct belay_ticket *ticket,
                        struct image *image)
{
    image->seq = ticket->seq;
    image->since_unix_ms = ticket->since_unix_ms;
    image->expires_ms = ticket->expires_ms;
    image->slots = ticket->slots;
    image->mode = ticket->mode;
    image->joint = ticket->joint;
    if (ticket->text_size == 0) {
        image_measure(record, ticket, image);
        return;
    }
    image->size = ticket->text_size;
    image->owner = offset_of(ticket, ticket->owner);
    image->owner_name = offset_of(ticket, ticket->owner_name);
    image->acquired_by = ticket->acquired_by == NULL ? NOWHERE : offset_of(ticket, ticket->acquired_by);
    image->key = ticket->key == record->key ? NOWHERE : offset_of(ticket, ticket->key);
}

static void put_with_nul(struct buf *to, const char *text)
{
    if (text != NULL) {
        buf_add(to, text, strlen(text) + 1);
    }
}

/* The text of a ticket, and of those behind it that follow in memory as well. Returns how many. */
static size_t put_ticket_texts(struct buf *to, const struct belay_record *record, size_t first)
{
    const struct belay_ticket *ticket = &record->tickets[first];
    const char *end = ticket->lock_id;
    size_t n = 0;

    for (; first + n < record->n_tickets && ticket[n].text_size > 0 && ticket[n].lock_id == end; n++) {
        end += ticket[n].text_size;
    }
    if (n > 0) {
        buf_add(to, ticket->lock_id, (size_t)(end - ticket->lock_id));
        return n;
    }
    put_with_nul(to, ticket->lock_id);
    put_with_nul(to, ticket->owner);
    put_with_nul(to, ticket->owner_name);
    put_with_nul(to, ticket->acquired_by);
    put_with_nul(to, is_own_key(record, ticket) ? NULL : ticket->key);
    return 1;
}

void pack_tickets(struct packed_writer *w, const struct belay_record *record)
{
    size_t n = record->n_tickets;
    struct image *images;

    put_unsigned(w, n);
    images = n == 0 ? NULL : buf_room(w->to, n * sizeof *images);
    if (images == NULL) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        image_write(record, &record->tickets[i], &images[i]);
    }
    buf_took(w->to, n * sizeof *images);
    for (size_t i = 0; i < n;) {
        i += put_ticket_texts(w->to, record, i);
    }
}

/* ---- unpacking ---- */

static inline bool image_fits(const struct image *image, const char *text, const char *end)
{
    uint32_t size = image->size;

    return size > 0 && size <= (size_t)(end - text) && text[size - 1] == '\0' && image->owner < size &&
           image->owner_name < size && (image->acquired_by < size || image->acquired_by == NOWHERE) &&
           (image->key < size || image->key == NOWHERE) && image->mode <= BELAY_SLOTS && image->joint <= 1;
}

static inline void image_read(const struct image *image, char *text, char *own_key,
                              struct belay_ticket *ticket)
{
    ticket->lock_id = text;
    ticket->key = image->key == NOWHERE ? own_key : text + image->key;
    ticket->owner = text + image->owner;
    ticket->owner_name = text + image->owner_name;
    ticket->seq = image->seq;
    ticket->since_unix_ms = image->since_unix_ms;
    ticket->expires_ms = image->expires_ms;
    ticket->dead = false;
    ticket->packed = true;
    ticket->text_size = image->size;
    ticket->acquired_by = image->acquired_by == NOWHERE ? NULL : text + image->acquired_by;
    ticket->mode = (enum belay_mode)image->mode;
    ticket->slots = image->slots;
    ticket->joint = image->joint != 0;
}

bool unpack_tickets(struct packed_reader *r, struct row *row)
{
    struct belay_record *record = &row->record;
    char *own_key = record->key;
    size_t n = get_count(r);
    const struct image *images = (const struct image *)r->at;
    char *text;

    if (n == 0 || n > (size_t)(r->end - r->at) / sizeof *images) {
        r->bad = r->bad || n > 0;
        return true;
    }
    text = (char *)(images + n);
    record->tickets = malloc(n * sizeof *record->tickets);
    row->has_liveness = malloc(n * sizeof *row->has_liveness);
    if (record->tickets == NULL || row->has_liveness == NULL) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (!image_fits(&images[i], text, (const char *)r->end)) {
            r->bad = true;
            return true;
        }
        image_read(&images[i], text, own_key, &record->tickets[i]);
        text += images[i].size;
        record->n_tickets = i + 1;
    }
    memset(row->has_liveness, true, n * sizeof *row->has_liveness);
    r->at = (unsigned char *)text;
    return true;
}
