#include "config/key_forms.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"

/* ---- templates --------------------------------------------------------- */

enum slot { SLOT_COMPONENT, SLOT_ENVIRONMENT, N_SLOTS };

static const char *const slot_marks[N_SLOTS] = { "{component}", "{environment}" };
static const char *const slot_names[N_SLOTS] = { "component", "environment" };

/* text[0] slots[0] text[1] slots[1] text[2]; with n slots there are n + 1 texts. */
struct form {
    struct key_piece text[N_SLOTS + 1];
    enum slot slots[N_SLOTS];
    size_t n;
};

static const char *const all = "all";

/* Its fault, or NULL. */
static const char *form_parse(const char *template, struct form *out)
{
    const char *at = template;
    struct form form = { .n = 0 };

    form.text[0].at = at;
    while ((at += strcspn(at, "{}")), *at != '\0') {
        enum slot slot = SLOT_COMPONENT;

        while (slot < N_SLOTS && !text_has_prefix(at, slot_marks[slot])) {
            slot++;
        }
        if (slot == N_SLOTS) {
            return "has braces that are neither {component} nor {environment}";
        }
        if (form.n == N_SLOTS || (form.n > 0 && form.slots[0] == slot)) {
            return "names a placeholder twice";
        }
        form.text[form.n].len = (size_t)(at - form.text[form.n].at);
        if (form.n > 0 && form.text[form.n].len == 0) {
            return "needs something between its placeholders, to tell where one ends";
        }
        form.slots[form.n++] = slot;
        at += strlen(slot_marks[slot]);
        form.text[form.n].at = at;
    }
    form.text[form.n].len = (size_t)(at - form.text[form.n].at);
    *out = form;
    return NULL;
}

const char *key_template_fault(const char *template)
{
    struct form form;

    if (!text_is_clean(template, BELAY_KEY_MAX)) {
        return "is empty, too long, or has characters that a key may not have";
    }
    if (key_begins_as_stack(template)) {
        return "begins with 'stack:', which is for keys made with --stack";
    }
    return form_parse(template, &form);
}

size_t key_template_weight(const char *template)
{
    struct form form;
    size_t weight = 0;

    if (form_parse(template, &form) == NULL) {
        for (size_t i = 0; i <= form.n; i++) {
            weight += form.text[i].len;
        }
    }
    return weight;
}

/* ---- names ------------------------------------------------------------- */

bool key_piece_is(struct key_piece piece, const char *text)
{
    return text == NULL
               ? piece.at == NULL
               : piece.at != NULL && strlen(text) == piece.len && memcmp(text, piece.at, piece.len) == 0;
}

static bool piece_is_name(struct key_piece piece)
{
    return piece.len > 0 && memchr(piece.at, ':', piece.len) == NULL;
}

/* The names that a slot may have; an empty list allows everything. */
static const char *const *slot_list(const struct key_scheme *scheme, enum slot slot, size_t *out_n)
{
    *out_n = slot == SLOT_COMPONENT ? scheme->n_components : scheme->n_environments;
    return slot == SLOT_COMPONENT ? scheme->components : scheme->environments;
}

static bool slot_allows(const struct key_scheme *scheme, enum slot slot, struct key_piece piece)
{
    size_t n;
    const char *const *list = slot_list(scheme, slot, &n);

    for (size_t i = 0; i < n; i++) {
        if (key_piece_is(piece, list[i])) {
            return true;
        }
    }
    return n == 0;
}

/* S0.5 prescribes the text. */
static enum belay_code fail_not_allowed(const struct key_scheme *scheme, enum slot slot,
                                        struct key_piece piece, struct belay_error *err)
{
    size_t n;
    const char *const *list = slot_list(scheme, slot, &n);
    struct buf options = BUF_INIT(sizeof err->text);

    for (size_t i = 0; i < n; i++) {
        buf_addf(&options, "%s%s", i == 0 ? "" : ", ", list[i]);
    }
    (void)error_set(err, BELAY_INVALID, "Invalid %s: %.*s. Valid options: %s", slot_names[slot],
                    (int)piece.len, piece.at, options.data == NULL ? "" : options.data);
    buf_release(&options);
    return BELAY_INVALID;
}

enum belay_code key_name_check(const char *flag, const char *name, struct belay_error *err)
{
    if (*name == '\0') {
        return error_set(err, BELAY_INVALID, "--%s is empty", flag);
    }
    if (!text_is_clean(name, BELAY_KEY_MAX)) {
        return error_set(err, BELAY_INVALID,
                         "--%s is longer than %d bytes, not UTF-8, or has control characters", flag,
                         BELAY_KEY_MAX);
    }
    if (strchr(name, ':') != NULL) {
        return error_set(err, BELAY_INVALID, "--%s: '%s' has a ':', which separates the parts of a key", flag,
                         name);
    }
    return BELAY_OK;
}

/* ---- reading by a template --------------------------------------------- */

static struct key_piece names_get(const struct key_names *names, enum slot slot)
{
    return slot == SLOT_COMPONENT ? names->component : names->environment;
}

static void names_set(struct key_names *names, enum slot slot, struct key_piece piece)
{
    *(slot == SLOT_COMPONENT ? &names->component : &names->environment) = piece;
}

static bool names_fit(const struct key_scheme *scheme, const struct form *form, const struct key_names *names,
                      bool by_lists)
{
    for (size_t i = 0; i < form->n; i++) {
        struct key_piece piece = names_get(names, form->slots[i]);

        if (!piece_is_name(piece) || (by_lists && !slot_allows(scheme, form->slots[i], piece))) {
            return false;
        }
    }
    return true;
}

/* Split `middle` into two names: at the best of all places where the text between the placeholders occurs. */
static bool split_names(const struct key_scheme *scheme, const struct form *form, struct key_piece middle,
                        bool by_lists, struct key_names *out)
{
    const struct key_piece between = form->text[1];
    bool want_longest = by_lists && scheme->n_environments > 0;
    struct key_names best = { { NULL, 0 }, { NULL, 0 } };

    for (size_t at = 1; at + between.len < middle.len; at++) {
        struct key_names names = { { NULL, 0 }, { NULL, 0 } };

        if (memcmp(middle.at + at, between.at, between.len) != 0) {
            continue;
        }
        names_set(&names, form->slots[0], (struct key_piece){ middle.at, at });
        names_set(&names, form->slots[1],
                  (struct key_piece){ middle.at + at + between.len, middle.len - at - between.len });
        if (names_fit(scheme, form, &names, by_lists) &&
            (best.environment.at == NULL || (names.environment.len > best.environment.len) == want_longest)) {
            best = names;
        }
    }
    if (best.environment.at == NULL) {
        return false;
    }
    *out = best;
    return true;
}

/* Most keys have another form, which their first letters show: then the template need not be parsed. */
static bool begins_like(const char *key, const char *template)
{
    size_t n = 0;

    while (template[n] != '{' && template[n] != '\0' && template[n] == key[n]) {
        n++;
    }
    return template[n] == '{' || template[n] == '\0';
}

static bool match_form(const struct key_scheme *scheme, const char *key, bool by_lists, struct form *form,
                       struct key_names *out)
{
    struct key_names names = { { NULL, 0 }, { NULL, 0 } };
    struct key_piece middle = { key, 0 };
    struct key_piece first, last;

    if (form_parse(scheme->template, form) != NULL) {
        return false;
    }
    if (form->n == 0) {
        *out = names;
        return strcmp(key, scheme->template) == 0;
    }
    first = form->text[0];
    last = form->text[form->n];
    middle.len = strlen(key);
    if (middle.len < first.len + last.len || memcmp(key, first.at, first.len) != 0 ||
        memcmp(key + middle.len - last.len, last.at, last.len) != 0) {
        return false;
    }
    middle.at += first.len;
    middle.len -= first.len + last.len;
    if (form->n == 2) {
        return split_names(scheme, form, middle, by_lists, out);
    }
    names_set(&names, form->slots[0], middle);
    if (!names_fit(scheme, form, &names, by_lists)) {
        return false;
    }
    *out = names;
    return true;
}

static bool read_form(const struct key_scheme *scheme, const char *key, bool by_lists, struct form *form,
                      struct key_names *out)
{
    return scheme->template != NULL && begins_like(key, scheme->template) &&
           match_form(scheme, key, by_lists, form, out);
}

/* Read a key as it was probably meant: with a known environment if possible, so that the error is about the component. */
static bool read_meant(const struct key_scheme *scheme, const char *key, struct form *form,
                       struct key_names *out)
{
    struct key_scheme loose = *scheme;

    loose.n_components = 0;
    return read_form(&loose, key, true, form, out) || read_form(scheme, key, false, form, out);
}

bool key_read_form(const struct key_scheme *scheme, const char *key, struct key_names *out_names,
                   bool *out_is_allowed)
{
    struct form form;
    bool is_allowed_here;

    if (scheme->template == NULL || !begins_like(key, scheme->template)) {
        return false;
    }
    is_allowed_here = read_form(scheme, key, true, &form, out_names);
    if (!is_allowed_here && !read_meant(scheme, key, &form, out_names)) {
        return false;
    }
    *out_is_allowed = is_allowed_here;
    return true;
}

enum belay_code key_check_scheme(const struct key_scheme *scheme, const char *key, struct belay_error *err)
{
    struct key_names names;
    struct form form;

    if (read_form(scheme, key, true, &form, &names)) {
        return BELAY_OK;
    }
    if (!read_meant(scheme, key, &form, &names)) {
        return BELAY_OK; /* another form: a key of its own */
    }
    for (size_t i = 0; i < form.n; i++) {
        struct key_piece piece = names_get(&names, form.slots[i]);

        if (!slot_allows(scheme, form.slots[i], piece)) {
            return fail_not_allowed(scheme, form.slots[i], piece, err);
        }
    }
    return BELAY_OK;
}

/* ---- making by a template ---------------------------------------------- */

static char *key_from_form(const struct form *form, const struct key_names *names)
{
    struct buf key = BUF_INIT(4 * BELAY_KEY_MAX);
    char *text;

    for (size_t i = 0; i <= form->n; i++) {
        buf_add(&key, form->text[i].at, form->text[i].len);
        if (i < form->n) {
            struct key_piece name = names_get(names, form->slots[i]);

            buf_add(&key, name.at, name.len);
        }
    }
    text = buf_take(&key);
    buf_release(&key);
    return text;
}

static bool form_has(const struct form *form, enum slot slot)
{
    for (size_t i = 0; i < form->n; i++) {
        if (form->slots[i] == slot) {
            return true;
        }
    }
    return false;
}

static enum belay_code put_name(const struct key_scheme *scheme, const struct form *form, enum slot slot,
                                const char *name, struct key_names *names, struct belay_error *err)
{
    struct key_piece piece = { name, name == NULL ? 0 : strlen(name) };
    enum belay_code code;

    if (!form_has(form, slot)) {
        return name == NULL
                   ? BELAY_OK
                   : error_set(err, BELAY_INVALID, "--%s: the keys of profile '%s' (%s) have no place for it",
                               slot_names[slot], scheme->profile, scheme->template);
    }
    if (name == NULL) {
        return error_set(err, BELAY_INVALID, "the keys of profile '%s' (%s) need --%s", scheme->profile,
                         scheme->template, slot_names[slot]);
    }
    if (*name != '\0' && text_is_clean(name, BELAY_KEY_MAX) && !slot_allows(scheme, slot, piece)) {
        return fail_not_allowed(scheme, slot, piece, err);
    }
    code = key_name_check(slot_names[slot], name, err);
    if (code == BELAY_OK) {
        names_set(names, slot, piece);
    }
    return code;
}

enum belay_code key_make_by_template(const struct key_scheme *scheme, const struct belay_key_parts *parts,
                                     char **out_key, struct belay_error *err)
{
    struct key_names names = { { NULL, 0 }, { NULL, 0 } };
    struct form form;
    enum belay_code code;
    char *key;

    if (form_parse(scheme->template, &form) != NULL) {
        return error_set(err, BELAY_BUG, "a template that was not checked: '%s'", scheme->template);
    }
    code = put_name(scheme, &form, SLOT_COMPONENT, parts->component, &names, err);
    if (code == BELAY_OK) {
        code = put_name(scheme, &form, SLOT_ENVIRONMENT, parts->environment, &names, err);
    }
    if (code != BELAY_OK) {
        return code;
    }
    key = key_from_form(&form, &names);
    if (key == NULL) {
        return error_no_memory(err);
    }
    *out_key = key;
    return BELAY_OK;
}

size_t key_above_template(const struct key_scheme *scheme, const struct key_names *names,
                          char *out_keys[BELAY_ANCESTORS_MAX])
{
    struct key_names above = *names;
    struct form form;

    if (names->component.at == NULL || key_piece_is(names->component, all) ||
        form_parse(scheme->template, &form) != NULL) {
        return 0;
    }
    above.component = (struct key_piece){ all, strlen(all) };
    out_keys[0] = key_from_form(&form, &above);
    return 1;
}
