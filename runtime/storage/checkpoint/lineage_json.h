// A lineage as JSON, in lineage.json and in manifests.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "runtime/storage/checkpoint/lineage.h"

namespace dstrain {

nlohmann::json to_json(const Lineage& lineage);
// Throws nlohmann::json::exception if `object` is not a lineage.
Lineage lineage_from(const nlohmann::json& object);

}  // namespace dstrain
