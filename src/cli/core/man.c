/* The command tables as man pages, in mdoc. */
#include <ctype.h>
#include <string.h>

#include "cli/core/help.h"

/* Escape what mdoc interprets: '.' and '\'' at the start of a line, '\' anywhere. */
static void put_escaped(FILE *file, const char *text)
{
    bool line_start = true;

    for (; *text != '\0'; text++) {
        if (*text == '\\') {
            (void)fputs("\\e", file);
        } else if (line_start && (*text == '.' || *text == '\'')) {
            (void)fprintf(file, "\\&%c", *text);
        } else if (*text == '-') {
            (void)fputs("\\-", file);
        } else if (strncmp(text, "…", 3) == 0) {
            (void)fputs("...", file);
            text += 2;
        } else {
            (void)fputc(*text, file);
        }
        line_start = *text == '\n';
        /* mdoc wants each sentence on a line of its own. */
        if (strncmp(text, ". ", 2) == 0) {
            (void)fputc('\n', file);
            text++;
            line_start = true;
        }
    }
}

static void put_paragraphs(FILE *file, const char *text)
{
    while (*text != '\0') {
        const char *end = strstr(text, "\n\n");
        size_t n = end == NULL ? strlen(text) : (size_t)(end - text);
        char paragraph[2048];

        (void)snprintf(paragraph, sizeof paragraph, "%.*s", (int)n, text);
        put_escaped(file, paragraph);
        (void)fputs(end == NULL ? "\n" : "\n.Pp\n", file);
        text += n + (end == NULL ? 0 : 2);
    }
}

static void put_man_pairs(FILE *file, const char *macro, const struct help_pair *pairs)
{
    (void)fputs(".Bl -tag -width Ds\n", file);
    for (; pairs->term != NULL; pairs++) {
        (void)fprintf(file, ".It %s ", macro);
        put_escaped(file, pairs->term);
        (void)fputc('\n', file);
        put_escaped(file, pairs->says);
        (void)fputs(".\n", file);
    }
    (void)fputs(".El\n", file);
}

static void put_man_options(FILE *file, const char *title, const struct option_def *defs)
{
    (void)fprintf(file, ".Ss %s\n.Bl -tag -width Ds\n", title);
    for (; defs->name != NULL; defs++) {
        const char *value = defs->kind == OPTION_CHOICE ? defs->choices : defs->value;

        (void)fputs(".It Fl Fl ", file);
        put_escaped(file, defs->name);
        if (value != NULL) {
            (void)fputs(" Ar ", file);
            put_escaped(file, value);
        }
        (void)fputc('\n', file);
        put_escaped(file, defs->help);
        (void)fputs(".\n", file);
    }
    (void)fputs(".El\n", file);
}

static void put_head(FILE *file, const char *name, const char *summary)
{
    char upper[64];
    size_t i = 0;

    for (; name[i] != '\0' && i + 1 < sizeof upper; i++) {
        upper[i] = (char)toupper((unsigned char)name[i]);
    }
    upper[i] = '\0';
    /* No date: builds must be reproducible. */
    (void)fprintf(file, ".Dd $Mdocdate$\n.Dt %s 1\n.Os belay %s\n.Sh NAME\n.Nm %s\n.Nd ", upper,
                  belay_version(), name);
    put_escaped(file, summary);
    (void)fputs("\n.Sh SYNOPSIS\n.Nm belay\n", file);
}

static void put_examples(FILE *file, const struct cli_command *command)
{
    (void)fputs(".Sh EXAMPLES\n", file);
    for (size_t i = 0; command->examples[i].line != NULL; i++) {
        char says[256];

        (void)snprintf(says, sizeof says, "%c%s:\n", toupper((unsigned char)command->examples[i].says[0]),
                       command->examples[i].says + 1);
        put_escaped(file, says);
        (void)fputs(".Bd -literal -offset indent\n", file);
        put_escaped(file, command->examples[i].line);
        (void)fputs("\n.Ed\n", file);
        if (command->examples[i + 1].line != NULL) {
            (void)fputs(".Pp\n", file);
        }
    }
}

static void page_name(char out[64], const struct cli_command *command)
{
    (void)snprintf(out, 64, "belay-%s", command->name);
    for (char *at = out; *at != '\0'; at++) {
        *at = *at == ' ' ? '-' : *at;
    }
}

static void man_command(FILE *file, const struct cli_command *command)
{
    char name[64];

    page_name(name, command);
    put_head(file, name, command->summary);
    put_escaped(file, command->name);
    (void)fputc(' ', file);
    put_escaped(file, command->synopsis);
    (void)fputs("\n.Sh DESCRIPTION\n", file);
    put_paragraphs(file, command->about);
    for (size_t i = 0; command->groups[i] != NULL; i++) {
        put_man_options(file, command->groups[i]->title, command->groups[i]->defs);
    }
    put_man_options(file, "Options of every command", global_options);
    (void)fputs(".Sh ENVIRONMENT\n", file);
    put_man_pairs(file, "Ev", help_environment);
    (void)fputs(".Sh EXIT STATUS\n.Bl -tag -width Ds\n", file);
    for (size_t i = 0; command->exits[i].says != NULL; i++) {
        (void)fprintf(file, ".It %d\n", command->exits[i].code);
        put_escaped(file, command->exits[i].says);
        (void)fputs(".\n", file);
    }
    (void)fputs(".El\n", file);
    put_examples(file, command);
    (void)fputs(".Sh SEE ALSO\n.Xr belay 1\n", file);
}

static void man_program(FILE *file)
{
    put_head(file, "belay", "run one deployment, build or migration at a time");
    (void)fputs("COMMAND [OPTIONS] ...\n.Sh DESCRIPTION\n", file);
    put_paragraphs(file, help_about);
    (void)fputs(".Ss Commands\n.Bl -tag -width Ds\n", file);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        char name[64];

        page_name(name, cli_commands[i]);
        (void)fprintf(file, ".It Xr %s 1\n", name);
        put_escaped(file, cli_commands[i]->summary);
        (void)fputs(".\n", file);
    }
    (void)fputs(".El\n", file);
    put_man_options(file, "Options of every command", global_options);
    (void)fputs(".Sh ENVIRONMENT\n", file);
    put_man_pairs(file, "Ev", help_environment);
    (void)fputs(".Sh FILES\n", file);
    put_man_pairs(file, "Pa", help_files);
    (void)fputs(".Sh EXIT STATUS\n", file);
    put_man_pairs(file, "", help_exits);
}

void help_man(FILE *file, const struct cli_command *command)
{
    if (command == NULL) {
        man_program(file);
    } else {
        man_command(file, command);
    }
}
