#include "runtime/engine/forward/forward_model.h"

#include "runtime/comm/devices/device_comm.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

const MemoryTable& checked(const MemoryTable& memory, const CheckDeviceBytes& check_bytes) {
  if (check_bytes) check_bytes(memory.total());
  return memory;
}

// Returns the run's job in f32, whose samples do not depend on how the run read its data.
Job forward_job(const Job& job, ForwardModel::Ends ends) {
  Job forward = in_f32(job);
  forward.data.packing =
      ends == ForwardModel::Ends::with_logits_of_documents ? Packing::pack : Packing::none;
  return forward;
}

}  // namespace

ForwardModel::ForwardModel(const Job& job, const WeightsSource& place,
                           const Implementations& implementations, int64_t seq_len, Ends ends,
                           int threads, const CheckDeviceBytes& check_bytes)
    : job_(forward_job(job, ends)),
      backend_(make_backend(implementations, job_.device)),
      comm_(make_device_communicator(self_, *backend_.device)),
      plans_(make_forward_plan(job_, seq_len, ends == Ends::with_losses,
                               {backend_.library, threads, {}})),
      arenas_(checked(plans_.memory, check_bytes), *backend_.device, comm(), threads),
      mesh_(comm(), self_, {}),
      executor_(plans_.validate, arenas_, backend_, job_, mesh_, nullptr) {
  load_forward_weights(job_, place, implementations, plans_.validate, arenas_, mesh_, threads);
}

void ForwardModel::read_logits(int64_t row, std::span<float> to) const {
  const Tensor all = tensor(program().logits);
  const auto columns = static_cast<int64_t>(to.size());
  check(all.dtype == DType::f32 && columns <= all.shape[-1], "logits are {} {}, not {} f32",
        name_of(all.dtype), to_string(all.shape), columns);
  const Tensor values{
      all.as<std::byte>() + row * all.shape[-1] * size_of(all.dtype), {columns}, all.dtype};
  on_host(*backend_.device, values, HostAccess::read, [&](int64_t first, const Tensor& piece) {
    std::copy_n(piece.as<const float>(), piece.elements(), to.begin() + first);
  });
}

}  // namespace dstrain
