#include "runtime/plan/mesh.h"

#include <array>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

// What the two ends of a channel are called.
struct Ends {
  Channel here, there;
  int step = 0;  // from this stage to the other one
};

constexpr std::array<Ends, kChannels - 1> kEnds{{
    {from_previous, to_next, -1},
    {to_next, from_previous, 1},
    {from_next, to_previous, 1},
    {to_previous, from_next, -1},
    {tied, tied, 0},
    {up_from_next, up_to_previous, 1},
    {up_to_previous, up_from_next, -1},
    {up_from_previous, up_to_next, -1},
    {up_to_next, up_from_previous, 1},
}};

}  // namespace

int channels_of(int stages, PipelineSchedule schedule) {
  if (stages == 1) return 1;
  return schedule == PipelineSchedule::zb_v ? kChannels : tied + 1;
}

ChannelEnd other_end(ChannelEnd end, int stages) {
  check(end.channel > data_group && end.channel < kChannels, "channel {} has no other end",
        static_cast<int>(end.channel));
  if (end.channel == tied) return {end.stage == 0 ? stages - 1 : 0, tied};
  const Ends& ends = kEnds[static_cast<size_t>(end.channel) - 1];
  return {(end.stage + ends.step + stages) % stages, ends.there};
}

std::vector<ChannelEnd> sending_ends(int stages, PipelineSchedule schedule) {
  const bool around = schedule == PipelineSchedule::interleaved;
  const int channels = channels_of(stages, schedule);
  std::vector<ChannelEnd> list{{0, tied}};
  for (const Channel channel : {to_next, to_previous, up_to_previous, up_to_next}) {
    if (channel >= channels) continue;
    const int step = kEnds[static_cast<size_t>(channel) - 1].step;
    for (int stage = 0; stage < stages; ++stage)
      if (around || (stage + step >= 0 && stage + step < stages)) list.push_back({stage, channel});
  }
  return list;
}

}  // namespace dstrain
