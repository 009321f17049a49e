#include "cli/core/deploy_info.h"

#include <fcntl.h>
#include <pwd.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/core/lock_options.h"

static const struct option_def about_defs[] = {
    { .name = "deployment-id",
      .kind = OPTION_TEXT,
      .value = "ID",
      .help = "the deployment's id; by default a new one" },
    { .name = "triggered-by",
      .kind = OPTION_TEXT,
      .value = "WHO",
      .help = "what started it; by default the CI run, else the user" },
    { .name = "user",
      .kind = OPTION_TEXT,
      .value = "NAME",
      .help = "the person behind it; by default CI's, else you" },
    { .name = "git-commit",
      .kind = OPTION_TEXT,
      .value = "SHA",
      .help = "the commit; by default CI's, else that of the working directory" },
    { .name = "git-branch", .kind = OPTION_TEXT, .value = "NAME", .help = "the branch; likewise" },
    { .name = "release",
      .kind = OPTION_TEXT,
      .value = "V",
      .help = "the version that is deployed, such as v1.2.3" },
    { .name = NULL },
};
const struct option_group about_group = { "What is recorded", about_defs };

static const char *env(const char *name)
{
    const char *value = getenv(name);

    return value == NULL || *value == '\0' || !text_is_clean(value, ABOUT_TEXT_SIZE - 1) ? NULL : value;
}

static const char *first(const char *a, const char *b)
{
    return a != NULL ? a : b;
}

/* ---- CI systems --------------------------------------------------------------- */

static const struct ci {
    const char *name;
    const char *mark; /* the variable that tells it */
    const char *run;
    const char *run_words; /* "github-actions-run", before the run's id and a '-' */
    const char *commit;
    const char *branch[3]; /* the first that is set; a merge's own branch before its target */
    const char *user[2];
} systems[] = {
    { "github-actions",
      "GITHUB_ACTIONS",
      "GITHUB_RUN_ID",
      "github-actions-run",
      "GITHUB_SHA",
      { "GITHUB_HEAD_REF", "GITHUB_REF_NAME", "GITHUB_REF" },
      { "GITHUB_ACTOR", NULL } },
    { "gitlab-ci",
      "GITLAB_CI",
      "CI_JOB_ID",
      "gitlab-ci-job",
      "CI_COMMIT_SHA",
      { "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", "CI_COMMIT_REF_NAME", "CI_COMMIT_BRANCH" },
      { "GITLAB_USER_LOGIN", "GITLAB_USER_EMAIL" } },
    { "jenkins",
      "JENKINS_URL",
      "BUILD_TAG",
      "jenkins",
      "GIT_COMMIT",
      { "CHANGE_BRANCH", "BRANCH_NAME", "GIT_BRANCH" },
      { "BUILD_USER_ID", "CHANGE_AUTHOR" } },
    { "buildkite",
      "BUILDKITE",
      "BUILDKITE_BUILD_ID",
      "buildkite-build",
      "BUILDKITE_COMMIT",
      { "BUILDKITE_BRANCH", NULL, NULL },
      { "BUILDKITE_BUILD_CREATOR", "BUILDKITE_BUILD_AUTHOR" } },
};

static const struct ci *find_ci(void)
{
    for (size_t i = 0; i < sizeof systems / sizeof systems[0]; i++) {
        if (env(systems[i].mark) != NULL) {
            return &systems[i];
        }
    }
    return NULL;
}

/* Jenkins' own tag begins with its name already. */
static void name_run(const struct ci *ci, const char *run, char *out, size_t size)
{
    size_t n = strlen(ci->run_words);
    bool is_named = strncmp(run, ci->run_words, n) == 0 && run[n] == '-';

    (void)snprintf(out, size, "%s%s%s", is_named ? "" : ci->run_words, is_named ? "" : "-", run);
}

char *about_ci_owner(void)
{
    const struct ci *ci = find_ci();
    const char *run = ci == NULL ? NULL : env(ci->run);
    char owner[2 * ABOUT_TEXT_SIZE];

    if (run == NULL) {
        return NULL;
    }
    name_run(ci, run, owner, sizeof owner);
    return strlen(owner) <= BELAY_OWNER_MAX ? strdup(owner) : NULL;
}

static const char *first_set(const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (names[i] != NULL && env(names[i]) != NULL) {
            return env(names[i]);
        }
    }
    return NULL;
}

static void read_ci(struct about *about, const struct ci *ci)
{
    const char *run = env(ci->run);
    const char *branch = first_set(ci->branch, 3);

    about->ci_system = ci->name;
    about->ci_run_id = run;
    about->deployment.git_commit = env(ci->commit);
    if (branch != NULL) {
        branch += text_has_prefix(branch, "refs/heads/") ? strlen("refs/heads/")
                  : text_has_prefix(branch, "origin/")   ? strlen("origin/")
                                                         : 0;
    }
    about->deployment.git_branch = branch;
    about->deployment.user = first_set(ci->user, 2);
    if (run != NULL) {
        name_run(ci, run, about->triggered_by, sizeof about->triggered_by);
    }
}

/* ---- git ------------------------------------------------------------------------ */

/* What git prints for commit and branch, on a line each; false if it says nothing. */
static bool ask_git(char *out, size_t size)
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

static void read_git(struct about *about)
{
    char *branch;

    if (!ask_git(about->git, sizeof about->git)) {
        return;
    }
    branch = strchr(about->git, '\n');
    if (branch != NULL) {
        *branch++ = '\0';
        branch[strcspn(branch, "\n")] = '\0';
    }
    if (text_is_clean(about->git, sizeof about->git)) {
        about->deployment.git_commit = first(about->deployment.git_commit, about->git);
    }
    /* "HEAD" means that no branch is checked out. */
    if (branch != NULL && strcmp(branch, "HEAD") != 0 && text_is_clean(branch, sizeof about->git)) {
        about->deployment.git_branch = first(about->deployment.git_branch, branch);
    }
}

/* ---- all of it -------------------------------------------------------------------- */

static void read_self(struct about *about)
{
    const struct passwd *entry = getpwuid(getuid());

    (void)gethostname(about->host, sizeof about->host - 1);
    (void)snprintf(about->pid, sizeof about->pid, "%ld", (long)getpid());
    if (entry != NULL) {
        (void)snprintf(about->user, sizeof about->user, "%s", entry->pw_name);
    } else {
        (void)snprintf(about->user, sizeof about->user, "uid %lu", (unsigned long)getuid());
    }
}

static enum belay_code read_options(const struct options *options, struct about *about,
                                    struct belay_error *err)
{
    static const char *const names[] = { "deployment-id", "triggered-by", "user",
                                         "git-commit",    "git-branch",   "release" };
    struct belay_deployment *said = &about->said;
    const char **says[] = { &said->deployment_id, &said->triggered_by, &said->user,
                            &said->git_commit,    &said->git_branch,   &said->version };
    const char **fields[] = { &about->deployment.deployment_id, &about->deployment.triggered_by,
                              &about->deployment.user,          &about->deployment.git_commit,
                              &about->deployment.git_branch,    &about->deployment.version };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *given = options_text(options, names[i]);

        if (given != NULL && !text_is_clean(given, ABOUT_TEXT_SIZE - 1)) {
            return error_set(err, BELAY_INVALID, "--%s '%.100s' is empty, too long, or no clean UTF-8",
                             names[i], given);
        }
        if (given != NULL) {
            *fields[i] = *says[i] = given;
        }
    }
    return BELAY_OK;
}

static void add_meta(struct about *about, const char *name, const char *value)
{
    if (value != NULL && *value != '\0' && about->n_meta < ABOUT_META_MAX) {
        about->meta[about->n_meta++] = (struct belay_meta){ name, value };
    }
}

enum belay_code about_read(const struct options *options, struct about *about, struct belay_error *err)
{
    struct belay_deployment *deployment = &about->deployment;
    char id[UUID_TEXT_SIZE];
    enum belay_code code;

    *about = (struct about){ .n_meta = 0 };
    deployment->duration_ms = about->said.duration_ms = -1;
    if (find_ci() != NULL) {
        read_ci(about, find_ci());
    }
    read_self(about);
    code = read_options(options, about, err);
    if (code != BELAY_OK) {
        return code;
    }
    if (deployment->git_commit == NULL) {
        read_git(about);
    }
    deployment->user = first(deployment->user, about->user);
    if (about->triggered_by[0] == '\0') {
        (void)snprintf(about->triggered_by, sizeof about->triggered_by, "%.140s@%.140s", about->user,
                       about->host);
    }
    deployment->triggered_by = first(deployment->triggered_by, about->triggered_by);
    if (deployment->deployment_id == NULL) {
        if (!uuid_make(id)) {
            return error_set(err, BELAY_BUG, "the system gives no random bytes");
        }
        (void)snprintf(about->deployment_id, sizeof about->deployment_id, "dep-%.8s%.4s", id, id + 9);
        deployment->deployment_id = about->deployment_id;
    }
    add_meta(about, "user", deployment->user);
    add_meta(about, "ci_system", about->ci_system);
    add_meta(about, "ci_run_id", about->ci_run_id);
    add_meta(about, "deployment_id", deployment->deployment_id);
    add_meta(about, "git_commit", deployment->git_commit);
    add_meta(about, "git_branch", deployment->git_branch);
    add_meta(about, "hostname", about->host);
    add_meta(about, "pid", about->pid);
    return BELAY_OK;
}

static bool has_meta(const struct lock_request *request, const char *name)
{
    for (size_t i = 0; i < request->options.n_metadata; i++) {
        if (strcmp(request->meta[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

enum belay_code about_add(const struct about *about, struct lock_request *request, struct belay_error *err)
{
    struct belay_lock_options *options = &request->options;
    struct belay_meta *meta =
        realloc(request->meta, (options->n_metadata + about->n_meta + 1) * sizeof *request->meta);

    if (meta == NULL) {
        return error_no_memory(err);
    }
    request->meta = meta;
    options->metadata = meta;
    for (size_t i = 0; i < about->n_meta && options->n_metadata + 1 < BELAY_META_MAX; i++) {
        if (!has_meta(request, about->meta[i].name)) {
            meta[options->n_metadata++] = about->meta[i];
        }
    }
    if (options->owner_name == NULL) {
        options->owner_name = about->deployment.triggered_by;
    }
    return BELAY_OK;
}
