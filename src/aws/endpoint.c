#include "aws/endpoint.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/text.h"

static const struct {
    const char *name;
    const char *variable;
    const char *key; /* in [services X] */
} services[AWS_N_SERVICES] = {
    [AWS_DYNAMODB] = { "dynamodb", "AWS_ENDPOINT_URL_DYNAMODB", "dynamodb.endpoint_url" },
    [AWS_S3] = { "s3", "AWS_ENDPOINT_URL_S3", "s3.endpoint_url" },
    [AWS_STS] = { "sts", "AWS_ENDPOINT_URL_STS", "sts.endpoint_url" },
    [AWS_EC2] = { "ec2", "AWS_ENDPOINT_URL_EC2", "ec2.endpoint_url" },
};

const char *aws_service_name(enum aws_service service)
{
    return services[service].name;
}

static bool is_region(const char *text)
{
    size_t len = strlen(text);

    for (const char *c = text; *c != '\0'; c++) {
        if (!isalnum((unsigned char)*c) && *c != '-') {
            return false;
        }
    }
    return len > 0 && len <= 63 && text[0] != '-' && text[len - 1] != '-';
}

enum belay_code region_find(const struct platform *platform, const struct profiles *profiles,
                            const char *profile, const char *wanted, char **out_region,
                            const char **out_origin, struct belay_error *err)
{
    const char *origin = "the store's URL";
    const char *found = wanted;
    char *copy;

    if (found == NULL) {
        found = platform_env(platform, origin = "AWS_REGION");
    }
    if (found == NULL) {
        found = platform_env(platform, origin = "AWS_DEFAULT_REGION");
    }
    if (found == NULL) {
        found = profile_get(profiles, profile, "region");
        origin = "the profile";
    }
    if (found == NULL) {
        *out_region = NULL;
        *out_origin = "nowhere";
        return BELAY_OK;
    }
    if (!is_region(found)) {
        return error_set(err, BELAY_CONFIG, "'%.64s' from %s is not a region such as 'eu-west-1'", found,
                         origin);
    }
    copy = strdup(found);
    if (copy == NULL) {
        return error_no_memory(err);
    }
    *out_region = copy;
    *out_origin = origin;
    return BELAY_OK;
}

static const char *domain_of(const char *region)
{
    static const struct {
        const char *prefix;
        const char *domain;
    } partitions[] = {
        { "cn-", "amazonaws.com.cn" }, { "us-isob-", "sc2s.sgov.gov" },  { "us-isof-", "csp.hci.ic.gov" },
        { "us-iso-", "c2s.ic.gov" },   { "eu-isoe-", "cloud.adc-e.uk" }, { "eusc-", "amazonaws.eu" },
    };

    for (size_t i = 0; i < sizeof partitions / sizeof partitions[0]; i++) {
        if (text_has_prefix(region, partitions[i].prefix)) {
            return partitions[i].domain;
        }
    }
    return "amazonaws.com";
}

/* The configured URL, and in *out_origin its source; NULL if there is none. */
static const char *configured_url(const struct platform *platform, const struct profiles *profiles,
                                  const char *profile, enum aws_service service, const char **out_origin)
{
    const char *ignore = profile_setting(platform, profiles, profile, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
                                         "ignore_configured_endpoint_urls");
    const char *url;

    if (ignore != NULL && strcasecmp(ignore, "true") == 0) {
        return NULL;
    }
    if ((url = platform_env(platform, *out_origin = services[service].variable)) != NULL ||
        (url = platform_env(platform, *out_origin = "AWS_ENDPOINT_URL")) != NULL) {
        return url;
    }
    *out_origin = "the profile";
    url = profile_get_service(profiles, profile, services[service].key);
    return url != NULL ? url : profile_get(profiles, profile, "endpoint_url");
}

static char *make_endpoint_url(const struct platform *platform, enum aws_service service, const char *region)
{
    const char *fips = platform_env_is_true(platform, "AWS_USE_FIPS_ENDPOINT") ? "-fips" : "";
    struct buf url = BUF_INIT(512);

    if (service == AWS_DYNAMODB && strcmp(region, "local") == 0) {
        buf_adds(&url, "http://localhost:8000");
    } else {
        buf_addf(&url, "https://%s%s.%s.%s", services[service].name, fips, region, domain_of(region));
    }
    return buf_take(&url);
}

enum belay_code endpoint_find(const struct platform *platform, const struct profiles *profiles,
                              const char *profile, enum aws_service service, const char *wanted,
                              const char *region, struct endpoint *out, struct belay_error *err)
{
    const char *origin = "the store's URL";
    const char *set = wanted != NULL ? wanted : configured_url(platform, profiles, profile, service, &origin);
    struct uri uri = { 0 };
    char *url;

    if (set == NULL && region == NULL && service != AWS_STS) {
        *out = (struct endpoint){ 0 };
        return BELAY_OK;
    }
    if (set == NULL && region == NULL) {
        /*
         * The one service that also works without a region: a role can be assumed before a
         * region is known.
         */
        set = "https://sts.amazonaws.com";
        origin = NULL;
    }
    url = set != NULL ? strdup(set) : make_endpoint_url(platform, service, region);
    if (url == NULL) {
        return error_no_memory(err);
    }
    if (!uri_parse(url, &uri) || *uri.query != '\0') {
        (void)error_set(err, BELAY_CONFIG,
                        "the endpoint of %s from %s, '%.200s', is not a URL such as 'http://localhost:8000'",
                        services[service].name, origin == NULL ? "nowhere" : origin, url);
        free(url);
        uri_release(&uri);
        return BELAY_CONFIG;
    }
    *out = (struct endpoint){ url, uri, set != NULL && origin != NULL };
    return BELAY_OK;
}

void endpoint_release(struct endpoint *endpoint)
{
    free(endpoint->url);
    uri_release(&endpoint->uri);
    memset(endpoint, 0, sizeof *endpoint);
}
