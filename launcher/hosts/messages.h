// What the launching process and an agent tell each other, as JSON. A message to the agent has "do", an
// answer or report "say". Times travel as ages, since clocks differ from host to host.
//
//   do                                            say
//   hello {version, run, silence_ns}                          hello {version, program, host, identity, time, memory,
//                                                 cores, open_files, addresses}, then alive once a
//                                                 second
//   input {words, directory, ranks}               input {error} or {files: [{path, hash}]}
//   open_mpi                                      open_mpi {orted, version}
//   probe {output, write}                         probe {seen} or {error}
//   probed
//   listen {port}                                 listening {port}
//   meet {peers: [{name, port, addresses}]}       met {failed: [{name, why}]}
//   watch {world, ranks}                          watching, then ranks {ranks, starter, stopped, kills}
//                                                 whenever they change and once a second; output {rank,
//                                                 error, text}
//   alive, at least once a second                 fault {text}, then it ends
//   stop {signal}, kill
//   end                                           bye, when nothing of the run is left
#pragma once

#include <nlohmann/json.hpp>

#include "launcher/supervise/host_view.h"

namespace dstrain {

nlohmann::json to_message(const RankReport& report, int64_t now_ns);
// Throws nlohmann::json::exception where something is missing.
RankReport rank_report_of(const nlohmann::json& message, int64_t now_ns);

nlohmann::json to_message(const StarterReport& report, int64_t now_ns);
// Throws nlohmann::json::exception where something is missing.
StarterReport starter_report_of(const nlohmann::json& message, int64_t now_ns);

// How long one end may be silent before the other takes it for lost, where nothing is said (dstrain.silence_s).
inline constexpr int64_t kLongestSilence = 5'000'000'000;
inline constexpr int64_t kHeartbeat = 1'000'000'000;

}  // namespace dstrain
