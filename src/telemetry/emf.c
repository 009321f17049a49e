/*
 * CloudWatch's embedded metric format: a log line that carries metrics. Names and dimensions are those of S4.11. A key
 * is never a dimension: CloudWatch charges for each combination of dimensions.
 */
#include <stdio.h>

#include "telemetry/sinks.h"
#include "json/json_write.h"

#define NAMESPACE "Deployer"
#define PREFIX "deployer."

static json_t *definition(const char *name, const char *unit)
{
    return json_pack("{s:s, s:s}", "Name", name, "Unit", unit);
}

/* CloudWatch rejects empty and non-ASCII dimensions: omit the former, replace characters in the latter. */
static void add_dimension(json_t *dimensions, json_t *root, const char *name, const char *value)
{
    char ascii[BELAY_KEY_MAX + 1];
    size_t n = 0;

    for (; *value != '\0' && n < BELAY_KEY_MAX; value++) {
        ascii[n++] = (char)(*value > ' ' && *value <= '~' ? *value : '_');
    }
    ascii[n] = '\0';
    if (n > 0) {
        (void)json_array_append_new(dimensions, json_string(name));
        (void)json_object_set_new(root, name, json_string(ascii));
    }
}

static void add_dimensions(const struct belay_config *config, const struct belay_event *event,
                           json_t *dimensions, json_t *root)
{
    struct belay_parsed_key form;

    if (event_is_of_database(event)) {
        add_dimension(dimensions, root, "DbIdentifier", event_database(event));
        return;
    }
    belay_key_parse(config, event->key, &form);
    add_dimension(dimensions, root, "Stack", form.stack);
    add_dimension(dimensions, root, "Environment", form.environment);
    add_dimension(dimensions, root, "LockLevel", form.level);
    add_dimension(dimensions, root, "Profile", form.profile);
}

char *emf_line(const struct belay_config *config, const struct belay_event *event)
{
    struct metric metrics[METRICS_MAX];
    size_t n = metric_map_event(event, metrics);
    json_t *definitions;
    json_t *dimensions;
    json_t *root;

    if (n == 0) {
        return NULL;
    }
    definitions = json_array();
    dimensions = json_array();
    root = json_object();
    add_dimensions(config, event, dimensions, root);
    for (size_t i = 0; i < n; i++) {
        char name[64];

        /* Metrics of databases (S3.9) have no prefix. */
        (void)snprintf(name, sizeof name, "%s%s", event_is_of_database(event) ? "" : PREFIX, metrics[i].name);
        (void)json_array_append_new(definitions, definition(name, metrics[i].unit));
        (void)json_object_set_new(root, name, json_real(metrics[i].value));
    }
    (void)json_object_set_new(root, "event", wire_text(event->type));
    (void)json_object_set_new(root, "lock_key", wire_text(event->key));
    /* Without dimensions too: alarms watch the total as well as each stack. */
    (void)json_object_set_new(root, "_aws",
                              json_pack("{s:I, s:[{s:s, s:[[], o], s:o}]}", "Timestamp",
                                        (json_int_t)event->at_unix_ms, "CloudWatchMetrics", "Namespace",
                                        NAMESPACE, "Dimensions", dimensions, "Metrics", definitions));
    return wire_line(root);
}
