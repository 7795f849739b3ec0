// The folders of the launcher depend one way: no chain of includes leads from a folder back to it. A file of the top
// folder counts as a folder of its own.
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

std::string folder_of(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.parent_path();
  return (folder.has_parent_path() ? folder : folder / path.stem()).string();
}

Graph folders_below(const std::string& top) {
  const std::regex include("#include \"(" + top + "/.+)\".*");
  Graph graph;
  for (const SourceFile& file : read_sources({top}, {".h", ".cpp"}))
    for (const std::string& line : file.lines) {
      std::smatch match;
      if (!std::regex_match(line, match, include)) continue;
      const std::string from = folder_of(file.path), to = folder_of(match[1].str());
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

TEST_CASE("folders of the launcher depend one way") {
  const Graph graph = folders_below("launcher");
  CHECK(graph.size() > 10);
  CHECK(unordered(graph) == "");
  CHECK(unordered({{"a", {"b"}}, {"b", {"c"}}}).empty());
  CHECK(unordered({{"a", {"b"}}, {"b", {"a"}}}) == "a -> b\nb -> a\n");
}

}  // namespace
}  // namespace dstrain::meta
