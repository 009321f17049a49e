#include "cli/core/deploy_info.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/core/lock_options.h"

const struct option_group deploy_info_group = {
    "Description of the deployment",
    OPTION_TABLE(
        OPT_TEXT("deployment-id", "ID", "the deployment's id; default: a new one"),
        OPT_TEXT("triggered-by", "WHO",
                 "the run or person that started it; default: the CI run, else the user"),
        OPT_TEXT("user", "NAME", "the person behind the deployment; default: the CI system's user, else you"),
        OPT_TEXT("git-commit", "SHA",
                 "the commit; default: the CI system's, else that of the working directory"),
        OPT_TEXT("git-branch", "NAME", "the branch; default: like --git-commit"),
        OPT_TEXT("release", "V", "the deployed version, such as v1.2.3"))
};

/* NULL for a variable that is unset, empty, too long or not text. */
static const char *env_clean(const char *name)
{
    const char *value = env_text(name);

    return value == NULL || !text_is_clean(value, DEPLOY_TEXT_SIZE - 1) ? NULL : value;
}

static const char *first_given(const char *a, const char *b)
{
    return a != NULL ? a : b;
}

/* ---- metadata ----------------------------------------------------------------- */

static void put_deploy_meta(struct deploy_info *info, const char *name, const char *value)
{
    if (value != NULL && *value != '\0' && info->n_meta < DEPLOY_META_MAX) {
        info->meta[info->n_meta++] = (struct belay_meta){ name, value };
    }
}

/* Entries that the request already has stay as they are. */
static enum belay_code add_all_meta(const struct deploy_info *info, struct lock_request *request,
                                    struct belay_error *err)
{
    struct belay_lock_options *options = &request->options;
    struct belay_meta *meta =
        realloc(request->meta, (options->n_metadata + info->n_meta + 1) * sizeof *request->meta);

    if (meta == NULL) {
        return error_no_memory(err);
    }
    request->meta = meta;
    options->metadata = meta;
    for (size_t i = 0; i < info->n_meta && options->n_metadata + 1 < BELAY_META_MAX; i++) {
        if (meta_find(meta, options->n_metadata, info->meta[i].name) == NULL) {
            meta[options->n_metadata++] = info->meta[i];
        }
    }
    return BELAY_OK;
}

/* ---- CI systems --------------------------------------------------------------- */

static const struct ci {
    const char *name;
    const char *mark; /* the variable that identifies it */
    const char *run;
    const char *run_prefix; /* prefix of the run's id: "github-actions-run" */
    const char *commit;
    const char *branch[3]; /* the first that is set; the source branch of a merge comes first */
    const char *user[2];
    const char *url[4]; /* the job's page; its parts, put together with the text between them */
} systems[] = {
    { "github-actions",
      "GITHUB_ACTIONS",
      "GITHUB_RUN_ID",
      "github-actions-run",
      "GITHUB_SHA",
      { "GITHUB_HEAD_REF", "GITHUB_REF_NAME", "GITHUB_REF" },
      { "GITHUB_ACTOR", NULL },
      { "$GITHUB_SERVER_URL", "/$GITHUB_REPOSITORY", "/actions/runs/$GITHUB_RUN_ID" } },
    { "gitlab-ci",
      "GITLAB_CI",
      "CI_JOB_ID",
      "gitlab-ci-job",
      "CI_COMMIT_SHA",
      { "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", "CI_COMMIT_REF_NAME", "CI_COMMIT_BRANCH" },
      { "GITLAB_USER_LOGIN", "GITLAB_USER_EMAIL" },
      { "$CI_JOB_URL" } },
    { "jenkins",
      "JENKINS_URL",
      "BUILD_TAG",
      "jenkins",
      "GIT_COMMIT",
      { "CHANGE_BRANCH", "BRANCH_NAME", "GIT_BRANCH" },
      { "BUILD_USER_ID", "CHANGE_AUTHOR" },
      { "$BUILD_URL" } },
    { "buildkite",
      "BUILDKITE",
      "BUILDKITE_BUILD_ID",
      "buildkite-build",
      "BUILDKITE_COMMIT",
      { "BUILDKITE_BRANCH", NULL, NULL },
      { "BUILDKITE_BUILD_CREATOR", "BUILDKITE_BUILD_AUTHOR" },
      { "$BUILDKITE_BUILD_URL", "#$BUILDKITE_JOB_ID" } },
};

static const struct ci *find_ci(void)
{
    for (size_t i = 0; i < sizeof systems / sizeof systems[0]; i++) {
        if (env_text(systems[i].mark) != NULL) {
            return &systems[i];
        }
    }
    return NULL;
}

bool deploy_info_in_ci(void)
{
    const struct ci *ci = find_ci();

    return ci != NULL && env_clean(ci->run) != NULL;
}

/* Jenkins' BUILD_TAG begins with its name already. */
static void name_run(const struct ci *ci, const char *run, char *out, size_t size)
{
    size_t n = strlen(ci->run_prefix);
    bool is_named = strncmp(run, ci->run_prefix, n) == 0 && run[n] == '-';

    (void)snprintf(out, size, "%s%s%s", is_named ? "" : ci->run_prefix, is_named ? "" : "-", run);
}

/* The page of this job; the caller frees. NULL: a part of it is not known. */
static char *make_url(const struct ci *ci)
{
    struct buf url = BUF_INIT(CI_URL_MAX);
    char *text;

    for (size_t i = 0; i < sizeof ci->url / sizeof ci->url[0] && ci->url[i] != NULL; i++) {
        const char *name = strchr(ci->url[i], '$') + 1;
        const char *value = env_clean(name);

        if (value == NULL) {
            buf_release(&url);
            return NULL;
        }
        buf_addf(&url, "%.*s%s", (int)(name - 1 - ci->url[i]), ci->url[i], value);
    }
    text = url.failed ? NULL : buf_take(&url);
    buf_release(&url);
    return text;
}

enum belay_code deploy_info_add_ci(struct lock_request *request, struct belay_error *err)
{
    const struct ci *ci = find_ci();
    const char *run = ci == NULL ? NULL : env_clean(ci->run);
    struct belay_lock_options *options = &request->options;
    struct deploy_info info = { .n_meta = 0 };
    char owner[2 * DEPLOY_TEXT_SIZE];

    if (run == NULL) {
        return BELAY_OK;
    }
    name_run(ci, run, owner, sizeof owner);
    if (options->owner == NULL && !options->reentrant && strlen(owner) <= BELAY_OWNER_MAX) {
        options->owner = request->ci_owner = strdup(owner);
    }
    request->ci_url = make_url(ci);
    put_deploy_meta(&info, "ci_system", ci->name);
    put_deploy_meta(&info, "ci_run_id", run);
    put_deploy_meta(&info, "ci_url", request->ci_url);
    return add_all_meta(&info, request, err);
}

static const char *first_set(const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (names[i] != NULL && env_clean(names[i]) != NULL) {
            return env_clean(names[i]);
        }
    }
    return NULL;
}

static void read_ci(struct deploy_info *info, const struct ci *ci)
{
    const char *run = env_clean(ci->run);
    const char *branch = first_set(ci->branch, 3);

    info->ci_system = ci->name;
    info->ci_run_id = run;
    info->deployment.git_commit = env_clean(ci->commit);
    if (branch != NULL) {
        branch += text_has_prefix(branch, "refs/heads/") ? strlen("refs/heads/")
                  : text_has_prefix(branch, "origin/")   ? strlen("origin/")
                                                         : 0;
    }
    info->deployment.git_branch = branch;
    info->deployment.user = first_set(ci->user, 2);
    if (run != NULL) {
        name_run(ci, run, info->triggered_by, sizeof info->triggered_by);
    }
}

/* ---- git ------------------------------------------------------------------------ */

/* The commit and the branch by git, one per line; false if git fails. */
static bool run_git(char *out, size_t size)
{
    static char git[] = "git", parse[] = "rev-parse", head[] = "HEAD", abbrev[] = "--abbrev-ref";
    char *argv[] = { git, parse, head, abbrev, head, NULL };
    posix_spawn_file_actions_t actions;
    size_t len = 0;
    int status = -1;
    int ends[2];
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        return false;
    }
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    (void)posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    if (posix_spawnp(&pid, git, &actions, NULL, argv, environ) == 0) {
        (void)close(ends[1]);
        ends[1] = -1;
        for (ssize_t n; len < size - 1 && (n = read(ends[0], out + len, size - 1 - len)) > 0;) {
            len += (size_t)n;
        }
        (void)waitpid(pid, &status, 0);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    if (ends[1] >= 0) {
        (void)close(ends[1]);
    }
    (void)close(ends[0]);
    out[len] = '\0';
    return status == 0 && len > 0;
}

static void read_git(struct deploy_info *info)
{
    char *branch;

    if (!run_git(info->git, sizeof info->git)) {
        return;
    }
    branch = strchr(info->git, '\n');
    if (branch != NULL) {
        *branch++ = '\0';
        branch[strcspn(branch, "\n")] = '\0';
    }
    if (text_is_clean(info->git, sizeof info->git)) {
        info->deployment.git_commit = first_given(info->deployment.git_commit, info->git);
    }
    /* "HEAD": no branch is checked out. */
    if (branch != NULL && strcmp(branch, "HEAD") != 0 && text_is_clean(branch, sizeof info->git)) {
        info->deployment.git_branch = first_given(info->deployment.git_branch, branch);
    }
}

/* ---- all sources -------------------------------------------------------------------- */

static void read_self(struct deploy_info *info)
{
    (void)gethostname(info->host, sizeof info->host - 1);
    (void)snprintf(info->pid, sizeof info->pid, "%ld", (long)getpid());
    cli_user_name(info->user, sizeof info->user);
}

static enum belay_code read_info_options(const struct options *options, struct deploy_info *info,
                                         struct belay_error *err)
{
    static const char *const names[] = { "deployment-id", "triggered-by", "user",
                                         "git-commit",    "git-branch",   "release" };
    struct belay_deployment *given = &info->given;
    const char **given_fields[] = { &given->deployment_id, &given->triggered_by, &given->user,
                                    &given->git_commit,    &given->git_branch,   &given->version };
    const char **fields[] = { &info->deployment.deployment_id, &info->deployment.triggered_by,
                              &info->deployment.user,          &info->deployment.git_commit,
                              &info->deployment.git_branch,    &info->deployment.version };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = options_text(options, names[i]);

        if (text != NULL && !text_is_clean(text, DEPLOY_TEXT_SIZE - 1)) {
            return error_set(err, BELAY_INVALID, "--%s '%.100s' is empty, too long, or not valid UTF-8",
                             names[i], text);
        }
        if (text != NULL) {
            *fields[i] = *given_fields[i] = text;
        }
    }
    return BELAY_OK;
}

enum belay_code deploy_info_read(const struct options *options, struct deploy_info *info,
                                 struct belay_error *err)
{
    struct belay_deployment *deployment = &info->deployment;
    char id[UUID_TEXT_SIZE];
    enum belay_code code;

    *info = (struct deploy_info){ .n_meta = 0 };
    deployment->duration_ms = info->given.duration_ms = -1;
    if (find_ci() != NULL) {
        read_ci(info, find_ci());
    }
    read_self(info);
    code = read_info_options(options, info, err);
    if (code != BELAY_OK) {
        return code;
    }
    if (deployment->git_commit == NULL) {
        read_git(info);
    }
    deployment->user = first_given(deployment->user, info->user);
    if (info->triggered_by[0] == '\0') {
        (void)snprintf(info->triggered_by, sizeof info->triggered_by, "%.140s@%.140s", info->user,
                       info->host);
    }
    deployment->triggered_by = first_given(deployment->triggered_by, info->triggered_by);
    if (deployment->deployment_id == NULL) {
        if (!uuid_make(id)) {
            return error_set(err, BELAY_BUG, "cannot get random bytes from the system");
        }
        (void)snprintf(info->deployment_id, sizeof info->deployment_id, "dep-%.8s%.4s", id, id + 9);
        deployment->deployment_id = info->deployment_id;
    }
    put_deploy_meta(info, "user", deployment->user);
    put_deploy_meta(info, "ci_system", info->ci_system);
    put_deploy_meta(info, "ci_run_id", info->ci_run_id);
    put_deploy_meta(info, "deployment_id", deployment->deployment_id);
    put_deploy_meta(info, "git_commit", deployment->git_commit);
    put_deploy_meta(info, "git_branch", deployment->git_branch);
    put_deploy_meta(info, "hostname", info->host);
    put_deploy_meta(info, "pid", info->pid);
    return BELAY_OK;
}

enum belay_code deploy_info_add(const struct deploy_info *info, struct lock_request *request,
                                struct belay_error *err)
{
    if (request->options.owner_name == NULL) {
        request->options.owner_name = info->deployment.triggered_by;
    }
    return add_all_meta(info, request, err);
}
