// GgufPlan: the file that `dstrain export --format gguf` writes, decided and checked before anything is written.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/export/export_plan.h"
#include "models/gguf/gguf_model.h"
#include "runtime/core/formats/gguf.h"

namespace dstrain {

struct GgufPlan {
  // A tensor, and what becomes it.
  struct Source {
    size_t weight = 0;  // index in `own` of the export's plan; kComputed: `values` instead
    models::GgufChange change = models::GgufChange::none;
    std::vector<float> values = {};
  };
  static constexpr size_t kComputed = static_cast<size_t>(-1);

  std::string path;  // of the file
  std::vector<GgufTensor> tensors = {};
  std::vector<Source> sources = {};  // of `tensors`
  int64_t head_size = 0;             // rows of a head that is interleaved
  GgufLayout layout = {};
};

// Plans the file of an export, and logs what the user should know of it. Throws UserError if llama.cpp has no architecture
// for the model, or does not read texts as its tokenizer does.
GgufPlan plan_gguf(const ExportPlan& plan, const ExportArguments& arguments);

// Adds the tensors of a model's weights `own` to the plan, where `type` is that of matrices. Throws InternalError for one
// that the model has no name for.
void add_gguf_tensors(const models::GgufModel& model, const StateRegister& own, GgufType type,
                      GgufPlan& plan);

}  // namespace dstrain
