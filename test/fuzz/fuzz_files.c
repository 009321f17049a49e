/* File formats: deployment state, the journal, packed records. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "belay/state.h"
#include "fuzz_parsers.h"
#include "store/apply/journal.h"
#include "store/apply/pack.h"

/* ---- deployment state, from a store that holds one document ---- */

struct one_blob {
    struct belay_blob_store base;
    char *data; /* owned */
    size_t len;
    unsigned version;
};

static void set_tag(const struct one_blob *store, struct belay_blob_tag *out)
{
    memset(out, 0, sizeof *out);
    (void)snprintf(out->text, sizeof out->text, "v%u", store->version);
}

static void blob_close(struct belay_blob_store *base)
{
    struct one_blob *store = (struct one_blob *)base;

    free(store->data);
    free(store);
}

static enum belay_code blob_get(struct belay_blob_store *base, const char *name, struct belay_blob *out,
                                struct belay_error *err)
{
    struct one_blob *store = (struct one_blob *)base;

    (void)err;
    if (strstr(name, "history/") == NULL && strstr(name, "state.json") == NULL) {
        return BELAY_NOT_FOUND;
    }
    out->data = malloc(store->len + 1);
    fuzz_must(out->data != NULL, "no memory");
    memcpy(out->data, store->data, store->len);
    out->data[store->len] = '\0';
    out->len = store->len;
    set_tag(store, &out->tag);
    return BELAY_OK;
}

static enum belay_code blob_put_if(struct belay_blob_store *base, const char *name, const void *data,
                                   size_t len, const struct belay_blob_tag *expected,
                                   struct belay_blob_tag *out_tag, struct belay_error *err)
{
    struct one_blob *store = (struct one_blob *)base;

    (void)expected;
    (void)err;
    if (strstr(name, "state.json") != NULL) {
        free(store->data);
        store->data = malloc(len + 1);
        fuzz_must(store->data != NULL, "no memory");
        memcpy(store->data, data, len);
        store->len = len;
        store->version++;
    }
    if (out_tag != NULL) {
        set_tag(store, out_tag);
    }
    return BELAY_OK;
}

static enum belay_code blob_list(struct belay_blob_store *base, const char *prefix, bool shallow,
                                 belay_blob_fn fn, void *context, struct belay_error *err)
{
    struct belay_blob_entry entry = { "stacks/s/e/history/2024-01-15-14-20-00.json", 1, 1 };

    (void)base;
    (void)shallow;
    (void)err;
    if (strncmp(entry.name, prefix, strlen(prefix)) == 0) {
        (void)fn(context, &entry);
    }
    return BELAY_OK;
}

static enum belay_code blob_remove(struct belay_blob_store *base, const char *name, struct belay_error *err)
{
    (void)base;
    (void)name;
    (void)err;
    return BELAY_OK;
}

static struct belay_states *open_states(const uint8_t *data, size_t len)
{
    static const struct belay_blob_ops ops = { .name = "one",
                                               .close = blob_close,
                                               .get = blob_get,
                                               .put_if = blob_put_if,
                                               .list = blob_list,
                                               .remove = blob_remove };
    static struct belay_config *config;
    struct belay_states_options options = BELAY_STATES_OPTIONS_INIT;
    struct belay_states *states = NULL;
    struct one_blob *store = calloc(1, sizeof *store);
    struct belay_error err = BELAY_ERROR_INIT;

    if (config == NULL) {
        fuzz_must(belay_config_load("/dev/null", &config, &err) == BELAY_OK, err.text);
    }
    options.config = config;
    fuzz_must(store != NULL && (store->data = malloc(len + 1)) != NULL, "no memory");
    memcpy(store->data, data, len);
    store->len = len;
    store->base.ops = &ops;
    fuzz_must(belay_states_open_store(&store->base, "file:/fuzz", &options, &states, &err) == BELAY_OK,
              err.text);
    return states;
}

static void on_finding(void *context, const struct belay_finding *finding)
{
    (void)context;
    fuzz_must(finding->text != NULL, "a finding without a text");
}

static bool on_text(void *context, const char *json)
{
    (void)context;
    fuzz_must(strchr(json, '\n') == NULL, "an entry of the history has more than one line");
    return true;
}

void fuzz_state(const uint8_t *data, size_t len)
{
    struct belay_state_name name = { "s", "e" };
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_states *states = open_states(data, len);
    struct belay_state *state = NULL;
    char *text = malloc(len + 1);

    fuzz_must(text != NULL, "no memory");
    memcpy(text, data, len);
    text[len] = '\0';
    (void)belay_document_check(text, len, &err);
    (void)belay_state_check(&name, text, len, &err);
    (void)belay_state_verify(states, &name, NULL, on_finding, NULL, &err);
    (void)belay_state_history(states, &name, 5, on_text, NULL, &err);
    if (belay_state_load(states, &name, &state, &err) == BELAY_OK) {
        fuzz_must(state->len == len && memcmp(state->text, data, len) == 0, "a state was changed by loading");
        belay_state_free(state);
    }
    belay_states_close(states);
    belay_error_release(&err);
    free(text);
}

/* ---- the journal ---- */

static void read_entries(struct journal_reader *reader)
{
    struct entry_room room = { 0 };
    struct journal_entry entry;
    const void *data = NULL;
    size_t len = 0;

    while (journal_next(reader, &data, &len)) {
        (void)entry_unpack(data, len, &room, &entry);
    }
    (void)journal_is_damaged(reader);
    entry_room_release(&room);
}

/* The file as it is; then the same bytes as one entry of a frame whose checksum is right. */
void fuzz_journal(const uint8_t *data, size_t len)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct journal journal = { .fd = -1 };
    struct journal_reader reader;
    uint32_t n = (uint32_t)len;
    struct buf frame = BUF_INIT(1 << 20);

    journal.path = strdup(fuzz_file("journal", data, len));
    fuzz_must(journal.path != NULL, "no memory");
    if (journal_open(&journal, &err) == BELAY_OK) {
        journal_read(&journal, &reader);
        read_entries(&reader);
    }
    journal_close(&journal);
    free(journal.path);
    journal_frame_init(&frame);
    buf_add(&frame, &n, sizeof n);
    buf_add(&frame, data, len);
    journal_read_buffer(&frame, &reader);
    read_entries(&reader);
    buf_release(&frame);
    belay_error_release(&err);
}

/* ---- packed commits and records: whatever can be read is the same when it is written and read again ---- */

/* Whatever an entry says, a record can be made of it. */
static void apply_entry(const struct journal_entry *entry)
{
    struct txn txn = { .now_ms = entry->now_ms, .unix_ms = entry->unix_ms, .next = entry->number };
    struct row row;

    fuzz_must(row_absent("key", &row, NULL) == BELAY_OK, "no memory");
    for (size_t i = 0; i < entry->n_writes; i++) {
        fuzz_must(write_apply(&entry->writes[i], &txn, true, &row, NULL) == BELAY_OK, "no memory");
        fuzz_must(row.record.n_holders == 0 || (row.record.held && row.record.mode != BELAY_EXCLUSIVE),
                  "a lock with holders is not held");
    }
    row_release(&row);
}

static void check_entry(const uint8_t *data, size_t len)
{
    struct entry_room room = { 0 };
    struct entry_room second_room = { 0 };
    struct journal_entry entry;
    struct journal_entry second;
    struct buf packed = BUF_INIT(1 << 20);

    if (entry_unpack(data, len, &room, &entry)) {
        entry_pack(&packed, &entry);
        fuzz_must(packed.failed || (entry_unpack(packed.data + ENTRY_HEAD, packed.len - ENTRY_HEAD,
                                                 &second_room, &second) &&
                                    second.number == entry.number && second.n_writes == entry.n_writes &&
                                    second.n_events == entry.n_events && second.n_deletes == entry.n_deletes),
                  "a commit is not the same when it is packed again");
        apply_entry(&entry);
    }
    buf_release(&packed);
    entry_room_release(&room);
    entry_room_release(&second_room);
}

static void check_packed_again(const struct belay_record *record)
{
    struct buf packed = BUF_INIT(1 << 20);
    struct row second = { 0 };

    record_pack(&packed, record);
    fuzz_must(packed.failed || (record_unpack("key", packed.data, packed.len, &second, NULL) == BELAY_OK &&
                                second.record.mode == record->mode && second.record.slots == record->slots &&
                                second.record.n_holders == record->n_holders &&
                                second.record.n_tickets == record->n_tickets),
              "a record is not the same when it is packed again");
    row_release(&second);
    buf_release(&packed);
}

static void check_record(const uint8_t *data, size_t len)
{
    struct belay_error err = BELAY_ERROR_INIT;
    struct belay_record numbers;
    struct row row;

    if (len == 0) {
        return;
    }
    if (record_unpack("key", data, len, &row, &err) == BELAY_OK) {
        fuzz_must(record_is_held_packed(data) == row.record.held, "two readers differ on who holds it");
        check_packed_again(&row.record);
        row_release(&row);
    }
    (void)record_unpack_numbers(data, len, &numbers);
    memset(&numbers, 0, sizeof numbers);
    (void)holders_unpack(data, len, &numbers);
    belay_record_release(&numbers);
    belay_error_release(&err);
}

void fuzz_packed(const uint8_t *data, size_t len)
{
    if (len == 0) {
        return;
    }
    if (data[0] % 2 == 0) {
        check_entry(data + 1, len - 1);
    } else {
        check_record(data + 1, len - 1);
    }
}
