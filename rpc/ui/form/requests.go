package form

import (
	"math"
	"strings"
	"time"

	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
)

// The bounds of numbers that have fewer values in the API than in their type.
const (
	priorityMin, priorityMax = -128, 1<<32 - 1
	// putsPerSecondMax bounds the puts per second of a namespace.
	putsPerSecondMax = 1_000_000_000
)

// ReadPut returns the put of a form. A due time without an offset is in zone. Line ends of the body
// are \n, whatever the browser sent.
func ReadPut(in Values, zone *time.Location) (*belfryv1.PutRequest, error) {
	req := &belfryv1.PutRequest{
		Queue: in.text("queue"), Id: in.text("id"), RequestId: in("requestId"),
		Body: &belfryv1.PutRequest_Text{Text: unixLines(in("body"))},
	}
	if text := in.text("due"); text != "" {
		delay, at, err := Moment("due", text, zone)
		switch {
		case err != nil:
			return nil, err
		case delay != nil:
			req.When = &belfryv1.PutRequest_Delay{Delay: delay}
		default:
			req.When = &belfryv1.PutRequest_DueAt{DueAt: at}
		}
	}
	if text := in.text("priority"); text != "" {
		n, err := Number("priority", text, priorityMin, priorityMax)
		if err != nil {
			return nil, err
		}
		req.Priority = &n
	}
	if err := readRetries(in, req); err != nil {
		return nil, err
	}
	var err error
	req.Headers, err = readHeaders(in("headers"))
	return req, err
}

// readRetries reads the part of a put about leases and attempts.
func readRetries(in Values, req *belfryv1.PutRequest) (err error) {
	if text := in.text("ttr"); text != "" {
		if req.Ttr, err = Duration("ttr", text); err != nil {
			return err
		}
	}
	if text := in.text("ttl"); text != "" {
		if req.Ttl, err = Duration("ttl", text); err != nil {
			return err
		}
	}
	if text := in.text("maxAttempts"); text != "" {
		n, err := Count("maxAttempts", text, math.MaxUint32)
		if err != nil {
			return err
		}
		attempts := uint32(n)
		req.MaxAttempts = &attempts
	}
	if text := in.text("retryDelays"); text != "" {
		req.RetryDelays, err = durations("retryDelays", text)
	}
	return err
}

// readHeaders reads headers, one in each line, with a colon behind its name.
func readHeaders(text string) (map[string]string, error) {
	headers := map[string]string{}
	for line := range strings.SplitSeq(unixLines(text), "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if !ok || name == "" {
			return nil, Errorf("headers", "the line %q is not of the form NAME: VALUE", line)
		}
		if _, twice := headers[name]; twice {
			return nil, Errorf("headers", "%q is there twice", name)
		}
		headers[name] = strings.TrimSpace(value)
	}
	return headers, nil
}

// unixLines returns a text of a browser with \n at the ends of lines, as it was typed. Browsers send
// \r\n.
func unixLines(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// ReadNamespace returns the limits of a namespace that a person changed; nil if none was.
func ReadNamespace(in Values) (*belfryv1.SetNamespaceRequest, error) {
	req, given := &belfryv1.SetNamespaceRequest{Name: in.text("name")}, false
	for _, limit := range []struct {
		name string
		most uint64
		to   **uint64
	}{
		{"maxJobs", math.MaxUint64, &req.MaxJobs}, {"maxBytes", math.MaxUint64, &req.MaxBytes},
		{"maxInFlight", math.MaxUint64, &req.MaxInFlight}, {"putsPerSecond", putsPerSecondMax, &req.PutsPerSecond},
	} {
		if !in.changed(limit.name) {
			continue
		}
		n, err := Count(limit.name, in.text(limit.name), limit.most)
		if err != nil {
			return nil, err
		}
		*limit.to, given = &n, true
	}
	if !given {
		return nil, nil //nolint:nilnil // no change is no request
	}
	return req, nil
}

// ReadToken returns the token that a form describes. Scopes have blanks or line ends between them.
func ReadToken(in Values) (*belfryv1.CreateTokenRequest, error) {
	req := &belfryv1.CreateTokenRequest{Scopes: strings.Fields(in("scopes")), About: in.text("about")}
	if len(req.Scopes) == 0 {
		return nil, Errorf("scopes", "1 to 32 are required, such as put:orders or consume:shop/*")
	}
	if text := in.text("ttl"); text != "" {
		var err error
		if req.Ttl, err = Duration("ttl", text); err != nil {
			return nil, err
		}
	}
	return req, nil
}
