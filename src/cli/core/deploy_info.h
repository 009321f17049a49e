/* The description of a deployment: from the options, the CI system, or git. */
#ifndef CLI_CORE_DEPLOY_INFO_H
#define CLI_CORE_DEPLOY_INFO_H

#include "belay/state.h"
#include "cli/core/cli.h"

extern const struct option_group deploy_info_group; /* --deployment-id, --git-commit, ... */

enum { DEPLOY_META_MAX = 9, DEPLOY_TEXT_SIZE = 300, CI_URL_MAX = 1000 };

/* Not to be copied: it points into itself. */
struct deploy_info {
    struct belay_deployment deployment; /* given or detected */
    struct belay_deployment given;      /* only what the options give */
    const char *ci_system;              /* NULL: none */
    const char *ci_run_id;
    struct belay_meta meta[DEPLOY_META_MAX]; /* for the lock (S4.4) */
    size_t n_meta;
    char deployment_id[64];
    char triggered_by[DEPLOY_TEXT_SIZE];
    char git[DEPLOY_TEXT_SIZE]; /* output of git */
    char user[DEPLOY_TEXT_SIZE];
    char host[DEPLOY_TEXT_SIZE];
    char pid[24];
};

/* Whether this is a job of a CI system that belay knows. */
bool deploy_info_in_ci(void);

struct lock_request;
/*
 * In a CI job: add ci_system, ci_run_id and ci_url, the job's page, to the request's metadata, and make the run the
 * owner (S4.4), such as "github-actions-run-12345", if the request has none. All jobs of one run then have the same
 * owner, so a re-entrant lock needs an explicit one.
 */
enum belay_code deploy_info_add_ci(struct lock_request *request, struct belay_error *err);

/* Add the owner's name and the metadata to the request, unless the options gave them. */
enum belay_code deploy_info_add(const struct deploy_info *info, struct lock_request *request,
                                struct belay_error *err);

enum belay_code deploy_info_read(const struct options *options, struct deploy_info *info,
                                 struct belay_error *err);

#endif
