/* Schemas of states and their versions, for /openapi.json. */
#include "server/core/routes.h"

/* clang-format off */
const char *const state_schemas[] = {
    "State object `of the format deployer-state-v1 (docs/state.md)`",
    "StateList {states {stack string, environment string, size integer, modified string?}[]}",
    "Saved {stack string, environment string, serial integer, token integer, snapshot string?, "
    "deployment_id string?, etag string}",
    "StateHistory {deployments object[], versions Version[]}",
    "Verified {is_sound boolean, findings {part string, level string, text string}[]}",
    "TerraformState object `whatever Terraform or OpenTofu wrote`",
    "TerraformList {states {name string, size integer, modified string?}[]}",
    "TerraformLock {ID string, -Operation string, -Info string, -Who string, -Version string, "
    "-Created string, -Path string}",
    "Snapshot {snapshot string}",
    "Store {id string}",
    "Version {index integer `1 is the newest`, name string, timestamp time, size integer}",
    "VersionList {-name string, versions Version[]}",
    "Adopt {-version string `its name, index or timestamp, or latest; by default the state itself`}",
    "Restore {version string `its name, index or timestamp, or latest`}",
    NULL
};
