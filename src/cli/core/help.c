#include "cli/core/help.h"

#include <string.h>

enum { HELP_COLUMNS = 79, TERM_COLUMNS = 24, USAGE_COLUMNS = 13 };

const struct help_pair help_environment[] = {
    { "BELAY_STORE", "where locks are kept, unless --store is given" },
    { "BELAY_STATE_STORE", "where deployment state is kept, unless --state-store is given" },
    { "BELAY_CONFIG", "the configuration file, unless --config is given" },
    { "BELAY_AUTH_TOKEN", "the token for a server" },
    { "BELAY_AUTH_FILE", "the file that contains that token, unless BELAY_AUTH_TOKEN is set" },
    { "BELAY_CA_FILE", "CA certificates to trust for https://, in PEM; default: the system's" },
    { "BELAY_PROGRESS_EVERY",
      "how often a wait without a terminal, or in a CI job, prints a line; default: 1m" },
    { "BELAY_DISABLED", "1 switches locking off: every lock is granted and protects nothing" },
    { "NO_COLOR", "if not empty, output is not colored" },
    { NULL, NULL },
};

const struct help_pair help_files[] = {
    { "$XDG_CONFIG_HOME/belay/config.yaml",
      "the user's configuration; ~/.config is the default of XDG_CONFIG_HOME" },
    { "/etc/belay/config.yaml", "the machine's configuration, read if the user has none" },
    { "./belay.yaml", "more profiles, which override those of the other files; other settings are refused" },
    { "$XDG_STATE_HOME/belay/belay.db",
      "the default store of locks; ~/.local/state is the default of XDG_STATE_HOME" },
    { NULL, NULL },
};

const struct help_pair help_exits[] = {
    { "0", "success" },
    { "64", "the command line is wrong: an unknown option, an invalid value, a missing argument" },
    { "65", "a file or a store is damaged" },
    { "66", "not found" },
    { "69", "the store is unreachable; nothing was changed" },
    { "70", "a bug in belay" },
    { "74", "unknown: the change may have happened; repeat it with the same lock id. Also: standard output "
            "cannot be written" },
    { "75", "another client holds the lock, or the wait timed out" },
    { "76", "the lease was lost while the command ran, or 'belay check' found that the lock is not held" },
    { "77", "not the holder, or not permitted; nothing was changed" },
    { "78", "the configuration is wrong" },
    { "130, 143", "ended by SIGINT or SIGTERM: 128 plus the number of the signal" },
    { NULL, NULL },
};

const char help_about[] =
    "A lock has a key and at most one holder at a time, unless it is shared or has slots. A holder has a "
    "lease, which expires "
    "unless it is renewed; a lock id, the secret that renews and releases the lock; and a fencing "
    "token, which is greater than the token of every earlier holder. Locks are kept in a store: by "
    "default an SQLite file in the home directory, shared by any number of processes.\n\n"
    "Options follow the command; the options of every command may also precede it. Write --opt "
    "value or --opt=value; -- ends the options. An option may be given twice only with the same "
    "value. Durations are written as 500ms, 30s, 10m or 1h30m.\n\n"
    "Results go to standard output; notes, warnings and errors go to standard error. With --json "
    "both are JSON, and an error is one object {\"error\": {\"code\", \"message\", \"lock\"}}.";

/*
 * The bytes and columns of a word. In a usage brackets with what is in them are one: "[--until TIME | --for D]". Every
 * character of our own texts is one column wide.
 */
static size_t word_bytes(const char *text, bool is_usage, size_t *out_columns)
{
    size_t n = 0;
    int depth = 0;

    *out_columns = 0;
    for (; text[n] != '\0' && text[n] != '\n' && (text[n] != ' ' || depth > 0); n++) {
        depth += is_usage ? (text[n] == '[') - (text[n] == ']') : 0;
        *out_columns += ((unsigned char)text[n] & 0xc0) != 0x80;
    }
    return n;
}

/* Print `text` in lines indented by `indent` columns; the cursor is at column `at`. */
static void wrap(FILE *file, const char *text, bool is_usage, size_t indent, size_t at)
{
    bool first = true;

    while (*text != '\0') {
        size_t columns;
        size_t n = word_bytes(text, is_usage, &columns);

        if (!first && at + 1 + columns > HELP_COLUMNS) {
            (void)fprintf(file, "\n%*s", (int)indent, "");
            at = indent;
            first = true;
        }
        (void)fprintf(file, "%s%.*s", first ? "" : " ", (int)n, text);
        at += columns + !first;
        first = false;
        text += n;
        if (text[0] == '\n' && text[1] == '\n') {
            (void)fprintf(file, "\n\n%*s", (int)indent, "");
            at = indent;
            first = true;
        }
        text += strspn(text, " \n");
    }
    (void)fputc('\n', file);
}

static void print_pair(FILE *file, const char *term, const char *says)
{
    size_t at = 2 + strlen(term);

    (void)fprintf(file, "  %s", term);
    if (at + 2 > TERM_COLUMNS) {
        (void)fputc('\n', file);
        at = 0;
    }
    (void)fprintf(file, "%*s", (int)(TERM_COLUMNS - at), "");
    wrap(file, says, false, TERM_COLUMNS, TERM_COLUMNS);
}

char *help_term(char out[HELP_TERM_SIZE], const struct option_def *def)
{
    const char *value = def->kind == OPTION_CHOICE ? def->choices : def->value;
    char letter[] = { '-', def->letter, ',', ' ', '\0' };

    (void)snprintf(out, HELP_TERM_SIZE, "%s--%s%s%s", def->letter == 0 ? "" : letter, def->name,
                   value == NULL ? "" : " ", value == NULL ? "" : value);
    return out;
}

static void print_options(FILE *file, const char *title, const struct option_def *defs)
{
    char term[HELP_TERM_SIZE];

    (void)fprintf(file, "\n%s:\n", title);
    for (; defs->name != NULL; defs++) {
        print_pair(file, help_term(term, defs), defs->help);
    }
}

/* The sections of the overview, by their first command. */
static const struct help_pair sections[] = {
    { "run", "Locks" },    { "deploy", "Deployment state" }, { "app register", "Shared databases" },
    { "serve", "Server" }, { "table create", "Stores" },     { "config show", "Other commands" },
};

static void print_section(FILE *file, const char *first_command)
{
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) {
        if (strcmp(sections[i].term, first_command) == 0) {
            (void)fprintf(file, "\n%s:\n", sections[i].says);
        }
    }
}

void help_overview(FILE *file, const char *group)
{
    size_t n = group == NULL ? 0 : strlen(group);

    (void)fprintf(file, "Usage: belay %s%sCOMMAND [OPTIONS] ...\n", group == NULL ? "" : group,
                  n == 0 ? "" : " ");
    (void)fputs(n == 0 ? "\nRun one deployment, build or migration at a time, with distributed locks.\n"
                       : "\n",
                file);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if (n == 0) {
            print_section(file, cli_commands[i]->name);
        }
        if (n == 0 || (strncmp(cli_commands[i]->name, group, n) == 0 && cli_commands[i]->name[n] == ' ')) {
            print_pair(file, cli_commands[i]->name, cli_commands[i]->summary);
        }
    }
    if (n == 0) {
        print_options(file, "Options of every command", global_options);
        (void)fputs("\nExamples:\n"
                    "  belay run deploy-api-prod -- ./deploy.sh\n"
                    "  belay acquire nightly-backup --ttl 1h\n"
                    "  belay list\n",
                    file);
    }
    (void)fputs("\n'belay help COMMAND' describes a command in detail.\n", file);
}

void help_command(FILE *file, const struct cli_command *command)
{
    char usage[256];

    (void)snprintf(usage, sizeof usage, "belay %s %s", command->name, command->synopsis);
    (void)fputs("Usage: ", file);
    wrap(file, usage, true, USAGE_COLUMNS, strlen("Usage: "));
    (void)fputc('\n', file);
    wrap(file, command->about, false, 0, 0);
    for (size_t i = 0; command->groups[i] != NULL; i++) {
        print_options(file, command->groups[i]->title, command->groups[i]->defs);
    }
    print_options(file, "Options of every command", global_options);
    (void)fputs("\nExit codes:\n", file);
    for (size_t i = 0; command->exits[i].says != NULL; i++) {
        (void)fprintf(file, "  %-4d", command->exits[i].code);
        wrap(file, command->exits[i].says, false, 6, 6);
    }
    (void)fputs("\nExamples:\n", file);
    for (size_t i = 0; command->examples[i].line != NULL; i++) {
        (void)fprintf(file, "  %s\n      ", command->examples[i].line);
        wrap(file, command->examples[i].says, false, 6, 6);
    }
}
