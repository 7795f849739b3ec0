// Division of a model among the parts of a pipeline, by what the plan knows of its layers: parameters, work, and
// the bytes that a stage needs for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/ir/program.h"
#include "runtime/plan/cost/machine_rates.h"
#include "runtime/plan/pipeline/level_stages.h"

namespace dstrain {

// Returns the first sublayer of every part and, at the end, the number of sublayers, as job.pipeline asks for. The
// methods memory and time cut layers between their sublayers, too, unless what the ranks of a stage send is packed by
// units: then a cut would move the blocks that are rounded together. Throws UserError if no layer has a name that the
// job asks for.
//   program  the whole training program after fuse()
//   rates    for the method time, which adds up the seconds of a layer
//   planned  for the method memory: returns the bytes of a stage's device. It is called where the job offloads, because
//            the method's own sums leave out what the device has of what is elsewhere.
std::vector<int64_t> divide_model(const Program& program, const Job& job, const MachineRates& rates,
                                  const StageBytes& planned = {});

// A run of sublayers: the numbers of the first and of the last one in the whole model.
struct SublayerRun {
  int first = 0, last = 0;
};

// Returns what a stage has of the model: the runs of sublayers of the program's units, in order.
std::vector<SublayerRun> runs_of(const Program& program);

// Returns runs of the model's sublayers as text, by the numbers of layers: "0 to 3.attn and 7.mlp to 8". A layer that a
// run has whole is its number; else its sublayers are named.
std::string layers_text(const std::vector<Sublayer>& sublayers,
                        const std::vector<SublayerRun>& runs);

}  // namespace dstrain
