// Reports about ranks as JSON messages between hosts. Times are sent as ages, because clocks differ between hosts.
#pragma once

#include <nlohmann/json.hpp>

#include "launcher/supervise/host_view.h"

namespace dstrain {

nlohmann::json to_message(const RankReport& report, int64_t now_ns);
// Throws nlohmann::json::exception if a member is missing or has another type.
RankReport rank_report_of(const nlohmann::json& message, int64_t now_ns);

nlohmann::json to_message(const StarterReport& report, int64_t now_ns);
// Throws nlohmann::json::exception if a member is missing or has another type.
StarterReport starter_report_of(const nlohmann::json& message, int64_t now_ns);

}  // namespace dstrain
