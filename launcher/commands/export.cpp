// dstrain export: writes the weights of a run in other programs' files. The model is never in memory.
#include <cmath>
#include <optional>

#include "launcher/commands/commands.h"
#include "launcher/export/export_plan.h"
#include "launcher/export/gguf/gguf_plan.h"
#include "launcher/export/gguf/write_gguf.h"
#include "launcher/export/model_folder.h"
#include "launcher/export/run_weights.h"
#include "launcher/process/failure.h"
#include "runtime/config/family/family.h"
#include "runtime/config/read/model_source.h"
#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/text.h"
#include "runtime/engine/files/adapter_files.h"
#include "runtime/engine/files/model_directory.h"
#include "runtime/storage/checkpoint/checkpoint_load.h"
#include "runtime/storage/disk/free_space.h"
#include "runtime/storage/weight_layout.h"
#include "runtime/storage/weights/copy_weights.h"
#include "runtime/storage/weights/weight_files.h"
#include "runtime/storage/weights/weights_reader.h"

namespace dstrain {
namespace {

// Throws UserError if fp16 would make a number infinite.
void check_fp16_range(const float* values, int64_t count, const std::string& name) {
  constexpr float kBeyond = 65520;  // rounds to infinity
  for (int64_t i = 0; i < count; ++i)
    if (std::abs(values[i]) >= kBeyond && std::isfinite(values[i]))
      fail_user("--dtype fp16: {} has the value {}, and fp16 ends at 65504: use bf16 or fp32", name,
                values[i]);
}

struct FileSizes {
  int64_t tensors = 0, bytes = 0;
};

FileSizes sizes_of(const ExportPlan& plan) {
  FileSizes sizes;
  const WeightLayout layout(plan.written);
  for (const FileTensor& tensor : layout.tensors()) {
    const DType dtype = plan.format.dtype ? plan.format.dtype(tensor.name) : DType::f32;
    sizes.bytes += tensor.shape.elements() * size_of(dtype);
    ++sizes.tensors;
  }
  return sizes;
}

std::string export_line(const std::string& output, const FileSizes& sizes) {
  return fmt::format("{}: {} tensors, {}\n", output, sizes.tensors,
                     bytes_text(static_cast<double>(sizes.bytes)));
}

// Writes weights and configuration under temporary names, removes the model that is replaced, and puts the new one in place,
// its configuration last.
void write_all(const ExportPlan& plan, OtherFiles others, const ReadWeight& read) {
  WeightsWriter writer(fmt::format("{}/{}", plan.output, plan.weights_name), plan.written,
                       plan.format);
  copy_weights(plan.written, read, writer);
  writer.complete();
  const bool of_adapters = !plan.adapter_config.empty();
  const std::string& text = of_adapters ? plan.adapter_config : plan.config_json;
  std::optional<NewFile> config;
  if (!text.empty()) {
    config.emplace(fmt::format("{}/{}", plan.output, of_adapters ? kAdapterConfig : kConfigJson));
    config->write_at(text.data(), static_cast<int64_t>(text.size()), 0);
    config->complete();
  }
  if (others == OtherFiles::removed) remove_model(plan.output);
  if (plan.copies_files) copy_model_files(plan.run.place.run_dir, plan.output, others);
  writer.finish();
  if (config) config->commit();
}

}  // namespace

int run_export(const ExportArguments& arguments, const ModelRegistry& models) {
  const ExportPlan plan = plan_export(arguments, models);
  std::optional<GgufPlan> gguf;
  if (arguments.gguf) gguf = plan_gguf(plan, arguments);
  RunWeights weights(plan);
  const NewFolder folder(plan.output);
  const FileSizes sizes =
      gguf ? FileSizes{std::ssize(gguf->tensors), gguf->layout.bytes} : sizes_of(plan);
  const std::string lack =
      lack_of_space("the export", sizes.bytes, free_bytes(plan.output), plan.output);
  if (!lack.empty())
    fail_user("{}: make room there, or name another directory with --output", lack);
  if (gguf) {
    write_gguf(*gguf, [&weights](size_t weight, int64_t begin, int64_t count, float* to) {
      weights.read(weight, begin, count, to);
    });
    print_result(export_line(plan.output, sizes));
    return 0;
  }
  const OtherFiles others = arguments.overwrite ? OtherFiles::removed : OtherFiles::stay;
  write_all(plan, others, [&](size_t weight, int64_t begin, int64_t count, float* to) {
    weights.read(weight, begin, count, to);
    if (arguments.dtype == DType::f16) check_fp16_range(to, count, plan.own[weight].name);
  });
  print_result(export_line(plan.output, sizes));
  return 0;
}

}  // namespace dstrain
