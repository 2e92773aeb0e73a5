package workload

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/belfrydb/belfry/jepsen/history"
	belfryv1 "github.com/belfrydb/belfry/rpc/belfry/v1"
	"github.com/belfrydb/belfry/rpc/belfry/v1/belfryv1connect"
)

// The calls, each written down. An answer is nil unless the call was answered without an error.

func (c *Client) put(ctx context.Context, r *belfryv1.PutRequest) (*belfryv1.PutResponse, *history.Op) {
	return call(ctx, c, c.queue(), belfryv1connect.QueueServiceClient.Put, r)
}

func (c *Client) putBatch(ctx context.Context, r *belfryv1.PutBatchRequest) (*belfryv1.PutBatchResponse, *history.Op) {
	return call(ctx, c, c.queue(), belfryv1connect.QueueServiceClient.PutBatch, r)
}

func (c *Client) reserve(ctx context.Context, r *belfryv1.ReserveRequest) (*belfryv1.ReserveResponse, *history.Op) {
	return call(ctx, c, c.queue(), belfryv1connect.QueueServiceClient.Reserve, r)
}

func (c *Client) ackBatch(ctx context.Context, r *belfryv1.AckBatchRequest) (*belfryv1.AckBatchResponse, *history.Op) {
	return call(ctx, c, c.queue(), belfryv1connect.QueueServiceClient.AckBatch, r)
}

func (c *Client) nack(ctx context.Context, r *belfryv1.NackRequest) (*belfryv1.NackResponse, *history.Op) {
	return call(ctx, c, c.queue(), belfryv1connect.QueueServiceClient.Nack, r)
}

func (c *Client) cancel(ctx context.Context, r *belfryv1.CancelRequest) (*belfryv1.CancelResponse, *history.Op) {
	return call(ctx, c, c.queue(), belfryv1connect.QueueServiceClient.Cancel, r)
}

func (c *Client) reschedule(ctx context.Context, r *belfryv1.RescheduleRequest) (*belfryv1.RescheduleResponse,
	*history.Op) {
	return call(ctx, c, c.queue(), belfryv1connect.QueueServiceClient.Reschedule, r)
}

func (c *Client) redrive(ctx context.Context, r *belfryv1.RedriveRequest) (*belfryv1.RedriveResponse, *history.Op) {
	return call(ctx, c, c.queue(), belfryv1connect.QueueServiceClient.Redrive, r)
}

func (c *Client) get(ctx context.Context, r *belfryv1.GetRequest) (*belfryv1.GetResponse, *history.Op) {
	return call(ctx, c, c.queue(), belfryv1connect.QueueServiceClient.Get, r)
}

func (c *Client) list(ctx context.Context, r *belfryv1.ListRequest) (*belfryv1.ListResponse, *history.Op) {
	return call(ctx, c, c.queue(), belfryv1connect.QueueServiceClient.List, r)
}

func (c *Client) createQueue(ctx context.Context, r *belfryv1.CreateQueueRequest) (*belfryv1.CreateQueueResponse,
	*history.Op) {
	return call(ctx, c, c.admin(), belfryv1connect.AdminServiceClient.CreateQueue, r)
}

func (c *Client) updateQueue(ctx context.Context, r *belfryv1.UpdateQueueRequest) (*belfryv1.UpdateQueueResponse,
	*history.Op) {
	return call(ctx, c, c.admin(), belfryv1connect.AdminServiceClient.UpdateQueue, r)
}

func (c *Client) purgeQueue(ctx context.Context, r *belfryv1.PurgeQueueRequest) (*belfryv1.PurgeQueueResponse,
	*history.Op) {
	return call(ctx, c, c.admin(), belfryv1connect.AdminServiceClient.PurgeQueue, r)
}

func (c *Client) deleteQueue(ctx context.Context, r *belfryv1.DeleteQueueRequest) (*belfryv1.DeleteQueueResponse,
	*history.Op) {
	return call(ctx, c, c.admin(), belfryv1connect.AdminServiceClient.DeleteQueue, r)
}

func (c *Client) ack(ctx context.Context, lease string) *history.Op {
	return c.ackAs(ctx, &belfryv1.AckRequest{Lease: lease, RequestId: c.maybeRequestID()})
}

func (c *Client) ackAs(ctx context.Context, r *belfryv1.AckRequest) *history.Op {
	_, o := call(ctx, c, c.queue(), belfryv1connect.QueueServiceClient.Ack, r)
	return o
}

func (c *Client) release(ctx context.Context, lease string, delay time.Duration) *history.Op {
	r := &belfryv1.ReleaseRequest{Lease: lease, Delay: durationpb.New(delay), RequestId: c.requestID()}
	_, o := call(ctx, c, c.queue(), belfryv1connect.QueueServiceClient.Release, r)
	return o
}

func (c *Client) extend(ctx context.Context, lease string, ttr time.Duration) *history.Op {
	r := &belfryv1.ExtendRequest{Lease: lease, Ttr: durationpb.New(ttr), RequestId: c.requestID()}
	_, o := call(ctx, c, c.queue(), belfryv1connect.QueueServiceClient.Extend, r)
	return o
}

func (c *Client) getQueue(ctx context.Context, queue string) (*belfryv1.GetQueueResponse, *history.Op) {
	return call(ctx, c, c.admin(), belfryv1connect.AdminServiceClient.GetQueue, &belfryv1.GetQueueRequest{Queue: queue})
}

func (c *Client) setNamespace(ctx context.Context, r *belfryv1.SetNamespaceRequest) (*belfryv1.SetNamespaceResponse,
	*history.Op) {
	return call(ctx, c, c.admin(), belfryv1connect.AdminServiceClient.SetNamespace, r)
}

func (c *Client) startTask(ctx context.Context, r *belfryv1.StartTaskRequest) (*belfryv1.StartTaskResponse,
	*history.Op) {
	return call(ctx, c, c.admin(), belfryv1connect.AdminServiceClient.StartTask, r)
}

func (c *Client) getTask(ctx context.Context, id string) (*belfryv1.GetTaskResponse, *history.Op) {
	return call(ctx, c, c.admin(), belfryv1connect.AdminServiceClient.GetTask, &belfryv1.GetTaskRequest{Id: id})
}

func (c *Client) stopTask(ctx context.Context, id string) *history.Op {
	_, o := call(ctx, c, c.admin(), belfryv1connect.AdminServiceClient.StopTask, &belfryv1.StopTaskRequest{Id: id})
	return o
}

func (c *Client) listTasks(ctx context.Context, queue string) (*belfryv1.ListTasksResponse, *history.Op) {
	return call(ctx, c, c.admin(), belfryv1connect.AdminServiceClient.ListTasks,
		&belfryv1.ListTasksRequest{Queue: queue})
}

// createToken makes a token, of which the history has all but the text.
func (c *Client) createToken(ctx context.Context, r *belfryv1.CreateTokenRequest) (*Credential, *history.Op) {
	made := &Credential{}
	create := func(service belfryv1connect.AdminServiceClient, ctx context.Context,
		r *belfryv1.CreateTokenRequest) (*belfryv1.CreateTokenResponse, error) {
		answer, err := service.CreateToken(ctx, r)
		if err == nil {
			made.ID, made.Text, answer.Token = answer.GetRecord().GetId(), answer.GetToken(), ""
		}
		return answer, err
	}
	_, o := call(ctx, c, c.admin(), create, r)
	return made, o
}

func (c *Client) deleteToken(ctx context.Context, r *belfryv1.DeleteTokenRequest) *history.Op {
	_, o := call(ctx, c, c.admin(), belfryv1connect.AdminServiceClient.DeleteToken, r)
	return o
}

// maybeRequestID returns a request id, or none: calls that are safe to repeat by themselves are
// made both ways.
func (c *Client) maybeRequestID() string {
	if c.oneIn(3) {
		return ""
	}
	return c.requestID()
}
