package payload

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// apiCall is a call of the API with JSON.
type apiCall struct {
	method  string
	request map[string]any
}

// Commands returns the calls that make sense for a job, as commands of a shell, one in each line. url
// is where the API is, without a slash at its end, and header is one more header; none if it is empty.
// A command is ASCII, whatever the job's id has in it, so what a person copies is what they see.
func Commands(j *belfryv1.Job, url, header string) (string, error) {
	of := func(more string, value any) map[string]any {
		request := map[string]any{"queue": j.GetQueue(), "id": j.GetId()}
		if j.GetKey() != "" {
			request["key"] = j.GetKey()
		}
		if more != "" {
			request[more] = value
		}
		return request
	}
	calls := []apiCall{{"get", of("ended", true)}}
	switch {
	case j.GetEndedAt() != nil:
	case j.GetState() == belfryv1.JobState_JOB_STATE_DEAD:
		calls = append(calls, apiCall{"redrive", map[string]any{"queue": j.GetQueue(), "ids": []string{j.GetId()}}})
	case j.GetState() != belfryv1.JobState_JOB_STATE_RESERVED:
		calls = append(calls, apiCall{"reschedule", of("delay", "0s")})
	}
	if j.GetEndedAt() == nil {
		calls = append(calls, apiCall{"cancel", of("", nil)})
	}
	var lines []string
	for _, call := range calls {
		line, err := curl(call, url, header)
		if err != nil {
			return "", err
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n"), nil
}

// curl returns the command for a call.
func curl(call apiCall, url, header string) (string, error) {
	body, err := json.Marshal(call.request)
	if err != nil {
		return "", fmt.Errorf("writing a request as JSON: %w", err)
	}
	command := "curl " + quoted(url+"/v1/"+call.method)
	if header != "" {
		command += ` -H "` + header + `"`
	}
	return command + " -d " + quoted(asciiJSON(string(body))), nil
}

// quoted is a text as one word of a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// asciiJSON writes what is not printable ASCII by its numbers.
func asciiJSON(text string) string {
	var out strings.Builder
	for _, r := range text {
		switch {
		case r <= unicode.MaxASCII:
			out.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}
