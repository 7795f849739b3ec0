// Offload of parameters: where they are held. gather() brings them to the device.
#include "runtime/plan/passes/passes.h"

namespace dstrain {

void offload_parameters(Program& program, const Job& job) {
  if (job.offload.parameters == OffloadTo::none) return;
  int64_t in_cpu = 0;
  for (const Unit& unit : program.units) {
    Buffer& params = program.at(unit.buffers.values.id);
    const int64_t elements = params.shape.elements();
    const bool to_disk =
        job.offload.parameters == OffloadTo::nvme && in_cpu + elements > job.offload.max_in_cpu;
    if (!to_disk) in_cpu += elements;
    params.space = to_disk ? Space::disk : Space::host;
  }
}

}  // namespace dstrain
