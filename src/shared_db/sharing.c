/*
 * All names of one database, and its users.
 *
 * Rows that share a name are one database, also through a third row: "i-1@db:5432"
 * connects "i-1" and "db:5432". An action that stops the whole host, such as stopping
 * an EC2 instance, stops every database there: then the host alone counts, whatever
 * the port and the kind.
 *
 * An invalid row might be any database. It matches none here; a stop calls
 * sharing_check() first, and does nothing while there is such a row.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "shared_db/shared_db_internal.h"

void db_names_release(struct db_names *names)
{
    names_free(names->ids, names->n_ids);
    names_free(names->hosts, names->n_hosts);
    memset(names, 0, sizeof *names);
}

/* ---- sorted sets of strings ---- */

static size_t place_in_list(char *const *list, size_t n, const char *text, size_t len, bool *out_is_there)
{
    size_t i = 0;
    int order = 1;

    for (; i < n; i++) {
        order = strncmp(list[i], text, len);
        order = order == 0 && list[i][len] != '\0' ? 1 : order;
        if (order >= 0) {
            break;
        }
    }
    *out_is_there = i < n && order == 0;
    return i;
}

static bool has(char *const *list, size_t n, const char *text, size_t len)
{
    bool is_there;

    (void)place_in_list(list, n, text, len, &is_there);
    return is_there;
}

/* True if it was added. */
static bool add_sorted(char ***list, size_t *n, const char *text, size_t len, bool *failed)
{
    bool is_there;
    size_t at = place_in_list(*list, *n, text, len, &is_there);
    char **grown;
    char *copy;

    if (is_there || *failed) {
        return false;
    }
    copy = strndup(text, len);
    grown = copy == NULL ? NULL : realloc(*list, (*n + 1) * sizeof *grown);
    if (grown == NULL) {
        free(copy);
        *failed = true;
        return false;
    }
    *list = grown;
    memmove(grown + at + 1, grown + at, (*n - at) * sizeof *grown);
    grown[at] = copy;
    (*n)++;
    return true;
}

/* ---- one row ---- */

/* The length of HOST in "HOST:PORT"; 0 for an instance id. */
static size_t host_len(const char *id)
{
    const char *colon = db_is_instance(id) ? NULL : strrchr(id, ':');

    return colon == NULL ? 0 : (size_t)(colon - id);
}

static bool names_have(const struct db_names *names, const char *id)
{
    return id != NULL && (has(names->ids, names->n_ids, id, strlen(id)) ||
                          (names->by_host && has(names->hosts, names->n_hosts, id, host_len(id))));
}

static bool names_have_row(const struct db_names *names, const struct belay_app_database *row)
{
    return names_have(names, row->id) || names_have(names, row->host);
}

/* True if anything was added. */
static bool names_add(struct db_names *names, const char *id)
{
    bool is_new;

    if (id == NULL) {
        return false;
    }
    is_new = add_sorted(&names->ids, &names->n_ids, id, strlen(id), &names->failed);
    if (host_len(id) > 0 && add_sorted(&names->hosts, &names->n_hosts, id, host_len(id), &names->failed)) {
        is_new = true;
    }
    return is_new;
}

static bool add_row(struct db_names *names, const struct belay_app_database *row)
{
    bool is_new = names_add(names, row->id);

    return names_add(names, row->host) || is_new;
}

bool db_row_is_valid(const struct belay_app_database *row)
{
    char *id = db_identifier(row->id);
    char *host = row->host == NULL ? NULL : db_identifier(row->host);
    bool is_right = id != NULL && strcmp(id, row->id) == 0;

    if (is_right && row->host != NULL) {
        is_right =
            host != NULL && strcmp(host, row->host) == 0 && db_is_instance(id) && !db_is_instance(host);
    }
    free(id);
    free(host);
    return is_right;
}

/* ---- all rows ---- */

bool db_names_collect(const struct app_registry *registry, const struct belay_app_database *target,
                      bool by_host, char *const *also_hosts, size_t n_also, struct db_names *out_names)
{
    struct db_names names = { .by_host = by_host };
    bool is_new = true;

    (void)add_row(&names, target);
    for (size_t i = 0; by_host && i < n_also; i++) {
        (void)add_sorted(&names.hosts, &names.n_hosts, also_hosts[i], strlen(also_hosts[i]), &names.failed);
    }
    while (is_new && !names.failed) {
        is_new = false;
        for (size_t i = 0; i < registry->n; i++) {
            for (size_t k = 0; k < registry->apps[i]->n_databases; k++) {
                const struct belay_app_database *row = &registry->apps[i]->databases[k];

                if (names_have_row(&names, row) && add_row(&names, row)) {
                    is_new = true;
                }
            }
        }
    }
    if (names.failed) {
        db_names_release(&names);
        return false;
    }
    *out_names = names;
    return true;
}

bool db_names_used_by(const struct db_names *names, const struct belay_app *app)
{
    for (size_t i = 0; i < app->n_databases; i++) {
        if (names_have_row(names, &app->databases[i])) {
            return true;
        }
    }
    return false;
}

bool db_names_contain(const struct db_names *all, const struct db_names *some)
{
    for (size_t i = 0; i < some->n_ids; i++) {
        if (!has(all->ids, all->n_ids, some->ids[i], strlen(some->ids[i]))) {
            return false;
        }
    }
    return true;
}

const struct belay_app_database *registry_find_database(const struct app_registry *registry,
                                                        const struct belay_app_database *database)
{
    const struct belay_app_database *found = NULL;
    struct db_names names = { 0 };

    if (!db_names_collect(registry, database, false, NULL, 0, &names)) {
        return NULL;
    }
    for (size_t i = 0; i < registry->n; i++) {
        for (size_t k = 0; k < registry->apps[i]->n_databases; k++) {
            const struct belay_app_database *one = &registry->apps[i]->databases[k];

            if (names_have_row(&names, one) &&
                (found == NULL || (db_is_instance(one->id) && !db_is_instance(found->id)) ||
                 (db_is_instance(database->id) && strcmp(found->id, database->id) != 0 &&
                  strcmp(one->id, database->id) == 0) ||
                 (found->host == NULL && one->host != NULL && strcmp(found->id, one->id) == 0))) {
                found = one;
            }
        }
    }
    db_names_release(&names);
    return found;
}

/* ---- checking ---- */

/* Two instance ids for one database: one of the rows is out of date. */
static enum belay_code check_instances(const struct db_names *names, struct belay_error *err)
{
    const char *first = NULL;

    for (size_t i = 0; i < names->n_ids; i++) {
        if (db_is_instance(names->ids[i])) {
            if (first != NULL) {
                return error_set(err, BELAY_BAD_CONTENT,
                                 "the registry has two instances for it, '%.60s' and '%.60s': correct the "
                                 "application whose row is out of date",
                                 first, names->ids[i]);
            }
            first = names->ids[i];
        }
    }
    return names->n_ids <= NAMES_MAX
               ? BELAY_OK
               : error_set(err, BELAY_BAD_CONTENT,
                           "it has %zu names in the registry, and at most %d can be locked", names->n_ids,
                           NAMES_MAX);
}

enum belay_code sharing_check(const struct app_registry *registry, const struct db_names *names,
                              const char *but_app, struct belay_error *err)
{
    for (size_t i = 0; i < registry->n; i++) {
        const struct belay_app *app = registry->apps[i];
        bool is_asking = but_app != NULL && strcmp(app->name, but_app) == 0;

        for (size_t k = 0; !is_asking && k < app->n_databases; k++) {
            const struct belay_app_database *row = &app->databases[k];

            if (!db_row_is_valid(row)) {
                return error_set(err, BELAY_BAD_CONTENT,
                                 "application '%.128s' has the invalid database '%.64s=%.200s%s%.200s', "
                                 "and may use this one: write an EC2 instance id or HOST:PORT",
                                 app->name, row->kind, row->id, row->host == NULL ? "" : "@",
                                 row->host == NULL ? "" : row->host);
            }
        }
    }
    return check_instances(names, err);
}
