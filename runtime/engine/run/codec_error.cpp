#include "runtime/engine/run/codec_error.h"

#include <algorithm>
#include <cmath>

#include "runtime/plan/codecs/codecs.h"

namespace dstrain {

CodecErrors codec_errors(const Plan& plan, const Arenas& arenas, Device& device,
                         Communicator& world) {
  CodecErrors errors;
  for (const std::string_view of : kCodecClasses) {
    const BufferId id = plan.program.find(codec_error_name(of));
    std::vector<double> units;
    if (id != kNone) {
      const Tensor there = arenas.tensor(plan, id);
      units.resize(static_cast<size_t>(there.elements()));
      device.download(units.data(), there.data, there.bytes());
    }
    // A stage of a pipeline may have none of a class that others have.
    std::vector<double> mine{0, 0, id == kNone ? 0.0 : 1.0};
    std::vector<double> all(mine.size() * static_cast<size_t>(world.size()));
    for (size_t i = 0; i < units.size(); ++i) mine[i % 2] += units[i];
    world.gather_values(mine, all);
    double lost = 0, whole = 0, any = 0;
    for (size_t i = 0; i < all.size(); i += mine.size()) {
      lost += all[i];
      whole += all[i + 1];
      any += all[i + 2];
    }
    if (any == 0) continue;
    if (of == kFactorClass) lost = std::max(0.0, whole - lost);  // they say what is left
    if (of == kSignClass || of == kSignSumClass)
      whole += lost;  // they say what is lost and what is left
    errors.emplace_back(of, whole == 0 ? 0 : std::sqrt(lost / whole));
  }
  return errors;
}

}  // namespace dstrain
