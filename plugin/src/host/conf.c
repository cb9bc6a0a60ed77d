/* SPDX-License-Identifier: Apache-2.0 */
/* The conf file's parser: bytes to lines, lines to sections and keys, keys to values. See conf.h. */
#include "host/conf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/shortage.h"

/* Lists the keys of a section for a message: "interface, mac, ...". */
static const char *list_keys(const char *section, char *list, size_t list_bytes) {
  size_t used = 0;
  list[0] = 0;
  for (unsigned id = 0; id < HARP_SETTING_COUNT; id++) {
    const struct harp_setting *setting = &harp_setting_table[id];
    if (!setting->key || strcmp(setting->section, section) != 0) continue;
    int length = snprintf(list + used, list_bytes - used, "%s%s", used ? ", " : "", setting->key);
    HARP_ASSERT(length > 0 && used + (size_t)length < list_bytes);
    used += (size_t)length;
  }
  return list;
}

/* ---- lines ---- */

struct parser {
  struct harp_conf *conf;
  struct harp_error *error;
  uint32_t line;       /* from 1 */
  const char *section; /* one of harp_setting_sections, NULL before the first */
  unsigned seen;       /* sections that were opened, one bit each */
};

static int parse_section(struct parser *parser, char *text) {
  char quote[HARP_QUOTE_BYTES];
  const char *file = parser->conf->file;
  size_t length = strlen(text);
  if (text[length - 1] != ']')
    return harp_error_set(parser->error, -EINVAL, "%s:%u: '%s': expected ] at the end of the section's line",
                          file, parser->line, harp_error_quote(text, quote));
  text[length - 1] = 0;
  text++;
  for (unsigned i = 0; harp_setting_sections[i]; i++) {
    if (strcmp(text, harp_setting_sections[i]) != 0) continue;
    if (parser->seen & 1u << i)
      return harp_error_set(parser->error, -EINVAL,
                            "%s:%u: section [%s] is there twice: expected one of each", file, parser->line,
                            harp_setting_sections[i]);
    parser->seen |= 1u << i;
    parser->section = harp_setting_sections[i];
    return 0;
  }
  return harp_error_set(parser->error, -EINVAL,
                        "%s:%u: unknown section [%s]: expected [eni], [engine], [memory] or [transport]",
                        file, parser->line, harp_error_quote(text, quote));
}

static int set_key(struct parser *parser, const char *name, const char *value) {
  char quote_name[HARP_QUOTE_BYTES], quote_value[HARP_QUOTE_BYTES], list[160], expected[HARP_EXPECTED_BYTES];
  struct harp_conf *conf = parser->conf;
  harp_error_quote(name, quote_name);
  harp_error_quote(value, quote_value);
  if (!parser->section)
    return harp_error_set(parser->error, -EINVAL,
                          "%s:%u: key '%s' = '%s': expected a [section] line before it", conf->file,
                          parser->line, quote_name, quote_value);
  for (unsigned id = 0; id < HARP_SETTING_COUNT; id++) {
    const struct harp_setting *setting = &harp_setting_table[id];
    if (!setting->key || strcmp(name, setting->key) != 0 || strcmp(parser->section, setting->section) != 0)
      continue;
    if (conf->lines[id])
      return harp_error_set(parser->error, -EINVAL,
                            "%s:%u: key '%s' = '%s': expected the key once, it is set in line %u", conf->file,
                            parser->line, name, quote_value, conf->lines[id]);
    if (!harp_settings_read(&conf->values, id, value))
      return harp_error_set(parser->error, -EINVAL, "%s:%u: key '%s' = '%s': expected %s", conf->file,
                            parser->line, name, quote_value, harp_setting_expected(id, expected));
    conf->lines[id] = parser->line;
    return 0;
  }
  return harp_error_set(parser->error, -EINVAL, "%s:%u: unknown key '%s' = '%s' in [%s]: expected one of %s",
                        conf->file, parser->line, quote_name, quote_value, parser->section,
                        list_keys(parser->section, list, sizeof list));
}

static bool is_space(char c) {
  return c == ' ' || c == '\t';
}

/* Cuts spaces off both ends, in place. */
static char *trim_spaces(char *text) {
  while (is_space(*text)) text++;
  size_t length = strlen(text);
  while (length > 0 && is_space(text[length - 1])) length--;
  text[length] = 0;
  return text;
}

/* Parses one NUL-terminated line, which it modifies. */
static int parse_line(struct parser *parser, char *text) {
  char quote[HARP_QUOTE_BYTES];
  text = trim_spaces(text);
  if (*text == 0 || *text == '#' || *text == ';') return 0;
  if (*text == '[') return parse_section(parser, text);
  char *equals = strchr(text, '=');
  if (!equals || equals == text)
    return harp_error_set(parser->error, -EINVAL, "%s:%u: '%s': expected key = value", parser->conf->file,
                          parser->line, harp_error_quote(text, quote));
  *equals = 0;
  return set_key(parser, trim_spaces(text), trim_spaces(equals + 1));
}

int harp_conf_parse(struct harp_conf *conf, const char *file, const char *text, size_t bytes,
                    struct harp_error *error) {
  struct parser parser = {.conf = conf, .error = error};
  memset(conf, 0, sizeof *conf);
  snprintf(conf->file, sizeof conf->file, "%s", file);
  if (bytes > HARP_CONF_FILE_BYTES_MAX)
    return harp_error_set(error, -EINVAL, "%s: the file is too long: expected at most %d KiB", conf->file,
                          HARP_CONF_FILE_BYTES_MAX >> 10);
  if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* a UTF-8 byte order mark */
    text += 3;
    bytes -= 3;
  }
  for (const char *at = text, *end = text + bytes; at < end;) {
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    size_t length = (size_t)((newline ? newline : end) - at);
    const char *next = newline ? newline + 1 : end;
    char line[HARP_CONF_LINE_BYTES_MAX + 1];
    parser.line++;
    if (length > 0 && at[length - 1] == '\r') length--;
    if (length > HARP_CONF_LINE_BYTES_MAX)
      return harp_error_set(error, -EINVAL, "%s:%u: the line is too long: expected at most %d bytes",
                            conf->file, parser.line, HARP_CONF_LINE_BYTES_MAX);
    if (memchr(at, 0, length))
      return harp_error_set(error, -EINVAL, "%s:%u: a NUL byte: expected text", conf->file, parser.line);
    memcpy(line, at, length);
    line[length] = 0;
    int rc = parse_line(&parser, line);
    if (rc < 0) return rc;
    at = next;
  }
  char expected[HARP_EXPECTED_BYTES];
  if (!harp_setting_is_set(&conf->values, HARP_SETTING_INTERFACE))
    return harp_error_set(error, -EINVAL, "%s: key 'interface' is missing from [eni]: expected %s",
                          conf->file, harp_setting_expected(HARP_SETTING_INTERFACE, expected));
  return 0;
}

/* ---- files ---- */

/* Reads up to max bytes. Returns how many, or -errno. */
static ssize_t read_all(int fd, char *text, size_t max) {
  size_t used = 0;
  while (used < max) {
    ssize_t got = read(fd, text + used, max - used);
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -errno;
    used += (size_t)got;
  }
  return (ssize_t)used;
}

int harp_conf_read(struct harp_conf *conf, const char *path, struct harp_error *error) {
  char text[HARP_CONF_FILE_BYTES_MAX + 1]; /* one more byte, to detect a longer file */
  struct stat info;
  /* Non-blocking, because the path may be a FIFO. */
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return harp_shortage_set(error, -errno, "%s: cannot open", path);
  int rc = fstat(fd, &info) < 0 ? -errno : 0;
  if (rc == 0 && !S_ISREG(info.st_mode)) rc = -EINVAL;
  ssize_t bytes = rc == 0 ? read_all(fd, text, sizeof text) : 0;
  close(fd);
  if (rc == -EINVAL) return harp_error_set(error, rc, "%s: expected a regular file", path);
  if (bytes < 0) rc = (int)bytes;
  if (rc < 0) return harp_shortage_set(error, rc, "%s: cannot read", path);
  if (info.st_mode & S_IWOTH) HARP_INFO("%s: anyone may write this file; used all the same", path);
  return harp_conf_parse(conf, path, text, (size_t)bytes, error);
}
