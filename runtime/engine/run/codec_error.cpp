#include "runtime/engine/run/codec_error.h"

#include <cmath>

#include "runtime/plan/codecs/codecs.h"

namespace dstrain {

CodecErrors codec_errors(const Plan& plan, const Arenas& arenas, Device& device,
                         Communicator& world) {
  CodecErrors errors;
  for (const std::string_view of : kCodecClasses) {
    const BufferId id = plan.program.find(codec_error_name(of));
    if (id == kNone) continue;
    const Tensor there = arenas.tensor(plan, id);
    std::vector<double> units(static_cast<size_t>(there.elements()));
    device.download(units.data(), there.data, there.bytes());
    std::vector<double> mine(2, 0), all(2 * static_cast<size_t>(world.size()));
    for (size_t i = 0; i < units.size(); ++i) mine[i % 2] += units[i];
    world.gather_values(mine, all);
    double lost = 0, whole = 0;
    for (size_t i = 0; i < all.size(); i += 2) {
      lost += all[i];
      whole += all[i + 1];
    }
    errors.emplace_back(of, whole == 0 ? 0 : std::sqrt(lost / whole));
  }
  return errors;
}

}  // namespace dstrain
