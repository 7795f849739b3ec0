// Folders depend one way: within a module no chain of includes leads from a folder back to it. A file of a folder that has
// folders inside counts as a folder of its own, with its header.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "tests/meta/source_tree.h"

namespace dstrain::meta {
namespace {

using Graph = std::map<std::string, std::set<std::string>>;  // a folder and those that it includes

// Returns the folders below `top` that have files, and `top`.
std::set<std::string> folders_of(const std::vector<SourceFile>& files) {
  std::set<std::string> folders;
  for (const SourceFile& file : files)
    folders.insert(std::filesystem::path(file.path).parent_path().string());
  return folders;
}

// Returns the folder that a file counts for.
std::string folder_of(const std::filesystem::path& path, const std::set<std::string>& folders) {
  const std::filesystem::path folder = path.parent_path();
  const std::string inside = folder.string() + "/";
  const auto next = folders.lower_bound(inside);
  const bool has_folders = next != folders.end() && next->starts_with(inside);
  return (has_folders ? folder / path.stem() : folder).string();
}

Graph folders_below(const std::string& top) {
  const std::regex include("#include \"(" + top + "/.+)\".*");
  const std::vector<SourceFile> files = read_sources({top}, {".h", ".cpp", ".cu", ".cuh"});
  const std::set<std::string> folders = folders_of(files);
  Graph graph;
  for (const SourceFile& file : files)
    for (const std::string& line : file.lines) {
      std::smatch match;
      if (!std::regex_match(line, match, include)) continue;
      const std::string from = folder_of(file.path, folders),
                        to = folder_of(match[1].str(), folders);
      if (from != to) graph[from].insert(to);
    }
  return graph;
}

// Returns the folders that are on a cycle, or include one that is.
std::string unordered(Graph graph) {
  const auto leads_out = [&graph](const std::string& folder) { return !graph.contains(folder); };
  while (std::erase_if(
             graph, [&](const auto& f) { return std::ranges::all_of(f.second, leads_out); }) > 0) {
  }
  std::string text;
  for (const auto& [folder, included] : graph)
    text += fmt::format("{} -> {}\n", folder, fmt::join(included, " "));
  return text;
}

TEST_CASE("folders depend one way") {
  size_t folders = 0;
  for (const char* module : {"runtime/comm", "runtime/config", "runtime/core", "runtime/data",
                             "runtime/engine", "runtime/ir", "runtime/optim", "runtime/plan",
                             "runtime/storage", "kernels", "models", "launcher"}) {
    const Graph graph = folders_below(module);
    folders += graph.size();
    CHECK(unordered(graph) == "");
  }
  CHECK(folders > 100);
  CHECK(unordered({{"a", {"b"}}, {"b", {"c"}}}).empty());
  CHECK(unordered({{"a", {"b"}}, {"b", {"a"}}}) == "a -> b\nb -> a\n");
}

}  // namespace
}  // namespace dstrain::meta
