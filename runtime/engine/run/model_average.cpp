// The part of ModelState that puts averages in the place of weights, for validation and files, while training goes on
// with the weights: the mean over shard groups which update their own (post_localSGD), and the average over steps
// (dstrain.ema).
#include <algorithm>
#include <array>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/engine/run/model_state.h"
#include "runtime/optim/optimizer_rules.h"

namespace dstrain {

void ModelState::for_average(
    const Unit& unit, const std::function<void(int64_t begin, const Tensor& values)>& take) const {
  constexpr int64_t kWindow = int64_t{1} << 22;  // elements
  const BufferId id = unit.buffers.master().id;
  const Tensor masters = arenas_.tensor(plan_, id);
  Device& device = arenas_.device();
  const int64_t window = std::min(kWindow, unit.elements);
  const Memory buffer = device.allocate(window * size_of(DType::f32), "averaged weights");
  const auto groups = static_cast<float>(plan_.place.replicas());
  std::vector<float> mean;
  for (int64_t begin = 0; begin < unit.elements; begin += window) {
    const int64_t n = std::min(window, unit.elements - begin);
    const Tensor sum{buffer.data(), {n}, DType::f32};
    on_host(arenas_.owner_of(plan_, id), {masters.as<float>() + begin, {n}, DType::f32},
            HostAccess::read, [&](int64_t at, const Tensor& values) {
              device.upload(sum.as<float>() + at, values.data, values.bytes());
            });
    mesh_.group(Axis::replica).all_reduce(sum).wait();
    on_host(device, sum, HostAccess::read, [&](int64_t at, const Tensor& values) {
      const auto* const sums = values.as<const float>();
      mean.assign(sums, sums + values.elements());
      for (float& value : mean) value /= groups;
      take(begin + at, {mean.data(), values.shape, DType::f32});
    });
  }
}

void ModelState::copy_values(BufferId from, BufferId to) const {
  const Tensor target = arenas_.tensor(plan_, to);
  on_host(arenas_.owner_of(plan_, from), arenas_.tensor(plan_, from), HostAccess::read,
          [&](int64_t first, const Tensor& values) {
            const Tensor part{target.as<float>() + first, values.shape, DType::f32};
            on_host(arenas_.owner_of(plan_, to), part, HostAccess::write,
                    [&](int64_t at, const Tensor& copy) {
                      std::copy_n(values.as<const float>() + at, copy.elements(), copy.as<float>());
                    });
          });
}

void ModelState::use_average() const {
  const Program& program = plan_.program;
  for (const Unit& unit : program.trained_units()) {
    const BufferId params = unit.buffers.values.id;
    if (unit.buffers.master().id == params) copy_values(params, unit.buffers.gradients.id);
    const Tensor all = arenas_.tensor(plan_, params);
    for_average(unit, [&](int64_t begin, const Tensor& mean) {
      const Tensor part{all.as<std::byte>() + begin * size_of(all.dtype), mean.shape, all.dtype};
      on_host(
          arenas_.owner_of(plan_, params), part, HostAccess::write,
          [&](int64_t at, const Tensor& values) { round(mean.as<const float>() + at, values); });
    });
  }
}

void ModelState::restore_own_weights() const {
  const Program& program = plan_.program;
  for (const Unit& unit : program.trained_units()) {
    const BufferId params = unit.buffers.values.id;
    if (unit.buffers.master().id == params)
      copy_values(unit.buffers.gradients.id, params);
    else
      publish(unit);
  }
}

void ModelState::exchange_averages() const {
  constexpr int64_t kWindow = int64_t{1} << 20;  // elements
  for (const Unit& unit : plan_.program.trained_units()) {
    const UnitBuffers::Slot* const slot = unit.buffers.slot(kWeightAverage.name);
    check(slot != nullptr, "unit {} has no average of its weights", unit.name);
    // Masters may be whole on each rank, while averages are divided as the optimizer's state is.
    const Range held = range_of(slot->values, unit, plan_.place);
    const std::array<UnitBuffer, 2> buffers{unit.buffers.master(), slot->values};
    std::array<std::vector<float>, 2> values;
    for (int64_t begin = held.begin; begin < held.end; begin += kWindow) {
      const int64_t n = std::min(kWindow, held.end - begin);
      const auto window = [&](const UnitBuffer& buffer) {
        const int64_t at = position_of(buffer, unit, plan_.place, begin);
        return Tensor{arenas_.tensor(plan_, buffer.id).as<float>() + at, {n}, DType::f32};
      };
      for (size_t i = 0; i < buffers.size(); ++i) {
        values[i].resize(static_cast<size_t>(n));
        on_host(arenas_.owner_of(plan_, buffers[i].id), window(buffers[i]), HostAccess::read,
                [&](int64_t at, const Tensor& part) {
                  std::copy_n(part.as<const float>(), part.elements(), values[i].begin() + at);
                });
      }
      for (size_t i = 0; i < buffers.size(); ++i)
        on_host(arenas_.owner_of(plan_, buffers[i].id), window(buffers[i]), HostAccess::write,
                [&](int64_t at, const Tensor& part) {
                  std::copy_n(values[1 - i].begin() + at, part.elements(), part.as<float>());
                });
    }
    if (slot->values.held != Held::whole) share_masters_of(unit);
    publish(unit);
  }
}

}  // namespace dstrain
