// dstrain eval: measures a trained model on a whole file, in this process.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "launcher/commands/commands.h"
#include "launcher/implementations.h"
#include "launcher/process/failure.h"
#include "launcher/text/eval_samples.h"
#include "launcher/text/named_model.h"
#include "runtime/config/family/family.h"
#include "runtime/config/text.h"
#include "runtime/core/cpu.h"
#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/formats/safetensors.h"
#include "runtime/core/log/log.h"
#include "runtime/core/threads/core_share.h"
#include "runtime/data/array_source.h"
#include "runtime/data/chat/template_directory.h"
#include "runtime/data/documents/encoded_text.h"
#include "runtime/data/file/file_kind.h"
#include "runtime/data/open_dataset.h"
#include "runtime/data/token_cache/line_settings.h"
#include "runtime/data/token_cache/tokenize_files.h"
#include "runtime/data/tokenizer/tokenizer_directory.h"
#include "runtime/engine/forward/evaluate.h"

namespace dstrain {
namespace {

using nlohmann::ordered_json;

// A file with one tensor `logits`, which is written row by row.
class LogitsFile {
 public:
  LogitsFile(const std::string& path, int64_t rows, int64_t columns)
      : file_(file_to_replace(path)), row_bytes_(columns * size_of(DType::f32)) {
    std::vector<SafetensorsTensor> tensors{
        {.name = "logits", .type = {"F32", size_of(DType::f32)}, .shape = {rows, columns}}};
    const std::string header = make_safetensors_header(tensors);
    file_.write_at(header.data(), static_cast<int64_t>(header.size()), 0);
    begin_ = static_cast<int64_t>(header.size());
  }
  void write(int64_t row, std::span<const float> logits) {
    file_.write_at(logits.data(), row_bytes_, begin_ + row * row_bytes_);
  }
  void commit() { file_.commit(); }

 private:
  NewFile file_;
  int64_t row_bytes_, begin_ = 0;
};

// Opens the file of --logits, before anything is computed.
std::unique_ptr<LogitsFile> open_logits(const std::string& path, int64_t rows,
                                        int64_t columns) try {
  if (std::filesystem::is_directory(path))
    fail_user("--logits {} is a directory: name a file", path);
  return std::make_unique<LogitsFile>(path, rows, columns);
} catch (const RunError& e) {
  fail_user("--logits: {}", e.what());
}

// Opens the file of --data: with the run's vocabulary, or as token ids of a text by the run's tokenizer. `chat_template`
// writes the messages of JSON lines; empty: that of the run, or of the tokenizer's folder.
std::unique_ptr<TokenSource> open_data(const std::string& path, const TrainedModel& model,
                                       const std::string& chat_template) {
  const DataConfig& data = model.job.data;
  const bool text = !model.tokenizer.empty() && data.format == DataFormat::automatic &&
                    !is_token_file(DataFile(path));
  if (!chat_template.empty() && !(text && has_json_lines(path)))
    fail_user(
        "--chat_template {}: it writes the messages of JSON lines (FILE.jsonl) for a model with a "
        "tokenizer.json, and --data {} is none: leave the option out",
        printable(chat_template), printable(path));
  if (!text) {
    auto source = open_for_model(path, model.job, model.vocabulary);
    if (!source->remark().empty()) log::warn("{} is {}", path, source->remark());
    return source;
  }
  if (!has_json_lines(path)) refuse_doubtful(DataFile(path));
  const auto tokenizer = open_tokenizer(model.tokenizer);
  std::vector<std::string> warnings = tokenizer->warnings();
  const bool of_run = chat_template.empty() && has_json_lines(path);
  const LineRules rules =
      line_rules(model.tokenizer, *tokenizer, {path},
                 {.chat_template = of_run ? template_of_run(model) : chat_template,
                  .loss_on = data.loss_on,
                  .skip_invalid = data.skip_invalid,
                  .named_by = of_run ? kTemplateKey : kTemplateOption},
                 warnings);
  DocumentCounts counts;
  auto source =
      checked_for_model(open_encoded_text(*tokenizer, path, rules.options, counts), model.job);
  for (const std::string& warning : warnings_of(counts)) warnings.push_back(warning);
  for (const std::string& warning : warnings) log::warn("{}", warning);
  return source;
}

ordered_json finite(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

ordered_json json_of(const Evaluation& e) {
  const std::optional<double> bits = e.bits_per_byte();
  return {{"tokens", e.tokens},
          {"bytes", e.bytes ? ordered_json(*e.bytes) : ordered_json(nullptr)},
          {"loss", finite(e.loss)},
          {"perplexity", finite(e.perplexity())},
          {"bits_per_byte", bits ? finite(*bits) : ordered_json(nullptr)},
          {"accuracy", e.accuracy()}};
}

// Returns a line for each value that is known.
std::string text_of(const Evaluation& e) {
  std::string text = fmt::format("{:<14}{}\n", "tokens", e.tokens);
  const auto add = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("{:<14}{}\n", name, value);
  };
  if (e.bytes) add("bytes", std::to_string(*e.bytes));
  add("loss", fmt::format("{:.6f}", e.loss));
  add("perplexity", fmt::format("{:.6g}", e.perplexity()));
  if (e.bytes) add("bits_per_byte", fmt::format("{:.6f}", *e.bits_per_byte()));
  add("accuracy", fmt::format("{:.6f}", e.accuracy()));
  return text;
}

}  // namespace

int run_eval(const EvalArguments& arguments, const ModelRegistry& models) {
  if (arguments.model.empty())
    if (WrittenRun run = read_run(arguments.run_dir, "--run", models);
        run.job.model.family().reads_arrays())
      return eval_samples(arguments, std::move(run));
  const TrainedModel model = read_named_model(arguments, arguments.seq_len, models);
  const CheckDeviceBytes check_bytes =
      check_forward(model, "use shorter windows (--seq_len) or a smaller model");
  const Job& job = model.job;
  std::unique_ptr<TokenSource> source = open_data(arguments.data, model, arguments.chat_template);
  const int64_t length = std::min(job.model.seq_len(), source->tokens());
  const int64_t ids = job.model.vocabulary();
  const TokenWindows windows(std::move(source), length);
  std::unique_ptr<LogitsFile> logits;
  if (!arguments.logits.empty()) logits = open_logits(arguments.logits, length, ids);
  const int threads = take_core_share(0, 1, threads_asked_for());
  ForwardModel forward(job, model.place, implementations(), length, ForwardModel::Ends::with_losses,
                       threads, check_bytes);
  TakeLogits take;
  if (logits)
    take = [&logits](int64_t row, std::span<const float> values) { logits->write(row, values); };
  const Evaluation result = evaluate(forward, windows, ids, take);
  if (logits) logits->commit();
  print_result(arguments.json ? json_of(result).dump() + "\n" : text_of(result));
  return 0;
}

}  // namespace dstrain
