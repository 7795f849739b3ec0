#include "models/exported/exported_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/exported/read/read_graph.h"
#include "runtime/core/error.h"
#include "runtime/core/formats/shown_text.h"

namespace dstrain::exported {
namespace {

constexpr int64_t kLargestProgram = int64_t{1} << 29;
constexpr ZipOrigin kArchive{"the exported model", "torch.export.save", "do not pack it anew"};

// Returns the last part of a name in the archive.
std::string_view file_name(std::string_view name) {
  return name.substr(name.rfind('/') + 1);
}

// What an archive without a program is, as far as its names tell.
[[noreturn]] void refuse_other_archive(const ZipArchive& archive) {
  for (const ZipEntry& entry : archive.entries()) {
    const std::string_view name = file_name(entry.name);
    if (name == "serialized_exported_program.json")
      fail_user(
          "{} has the layout that PyTorch wrote before 2.9, with pickles: export the model anew "
          "with a "
          "later version: {}",
          archive.path(), kExportAdvice);
    if (name == "data.pkl")
      fail_user(
          "{} is what torch.save or torch.jit.save has written, expected an exported program: {}",
          archive.path(), kExportAdvice);
  }
  fail_user("{} has no entry models/NAME.json, expected an exported program: {}", archive.path(),
            kExportAdvice);
}

// Returns the entry that holds the program, "FOLDER/models/NAME.json".
const ZipEntry& program_of(const ZipArchive& archive) {
  const ZipEntry* program = nullptr;
  for (const ZipEntry& entry : archive.entries()) {
    const size_t models = entry.name.find("/models/");
    if (!entry.name.ends_with(".json") || models == std::string::npos ||
        models != entry.name.find('/') || entry.name.find('/', models + 8) != std::string::npos)
      continue;
    if (program)
      fail_user(
          "{} has the programs \"{}\" and \"{}\", expected one: write each model into a file of "
          "its "
          "own",
          archive.path(), shown_text(program->name), shown_text(entry.name));
    program = &entry;
  }
  if (!program) refuse_other_archive(archive);
  return *program;
}

// Checks what a small text entry of an archive says; it need not be there.
void check_mark(const ZipArchive& archive, const std::string& name, std::string_view expected) {
  const ZipEntry* entry = archive.find(name);
  if (!entry) return;
  std::string text = archive.read(*entry, 1000);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  if (text != expected)
    fail_user("{}: \"{}\" says \"{}\", expected \"{}\"", archive.path(), shown_text(name),
              shown_text(text), expected);
}

// Checks that the archive stores each tensor of the module's state that the graph is given.
void check_state(const ExportedModel& model) {
  for (const GraphInput& input : model.graph.inputs) {
    if (input.kind == InputKind::user) continue;
    const TensorInfo& info = model.graph.tensor(input.tensor);
    const StoredTensor* stored = model.find(input.name);
    if (!stored)
      fail_user("{}: the graph is given \"{}\", which the archive does not store",
                model.archive.path(), shown_text(input.name));
    const std::vector<Size> sizes(stored->sizes.begin(), stored->sizes.end());
    if (info.type != stored->type || info.sizes != sizes)
      fail_user("{}: \"{}\" is stored as {} {}, and the graph is given {} {}", model.archive.path(),
                shown_text(input.name), name_of(stored->type), to_string(sizes), name_of(info.type),
                to_string(info.sizes));
  }
}

}  // namespace

const StoredTensor* ExportedModel::find(std::string_view name) const {
  const auto it = std::ranges::lower_bound(tensors, name, {}, &StoredTensor::name);
  return it != tensors.end() && it->name == name ? &*it : nullptr;
}

ExportedModel read_exported(const std::string& path) {
  ZipArchive archive(path, kArchive);
  const ZipEntry& program = program_of(archive);
  const std::string folder = program.name.substr(0, program.name.find('/')),
                    name(file_name(program.name).substr(0, file_name(program.name).size() - 5));
  check_mark(archive, folder + "/archive_format", "pt2");
  check_mark(archive, folder + "/archive_version", "0");
  check_mark(archive, folder + "/byteorder", "little");
  Graph graph = read_graph(archive.read(program, kLargestProgram), path + ": " + program.name);
  std::vector<StoredTensor> tensors = read_stored_tensors(archive, folder, name);
  ExportedModel model{std::move(archive), std::move(graph), std::move(tensors)};
  check_state(model);
  return model;
}

}  // namespace dstrain::exported
