//! From a request body to an answer: the part of a server that a client is there for.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Response, StatusCode};
use tokio::sync::mpsc;

use super::answer::Writer;
use super::body::{Body, Shape};
use super::engine_loop::{Command, Submission};
use super::error::ApiError;
use super::route::{Answer, Arrival, error};
use super::shared::Shared;
use super::stream::{AnswerBody, Cut, Events, Guard, UsageCount};
use crate::engine;
use crate::tokens::answer;

/// Answers a chat or completions request.
pub(super) async fn generate(shared: &Arc<Shared>, request: Arrival, shape: Shape) -> Answer {
    let Arrival {
        number,
        arrived,
        head,
        body,
    } = request;
    let asked = check_type(&head.headers).and_then(|()| Body::parse(shape, &body));
    if let Ok(body) = &asked {
        shared
            .log()
            .update(number, |entry| entry.model.clone_from(&body.model));
    }
    let checked = asked.and_then(|body| Ok((model(shared, &body)?, fit(shared, body)?)));
    let (model, body) = match checked {
        Ok(checked) => checked,
        Err(refusal) => return Ok(error(&refusal)),
    };
    let prompt_tokens = body.prompts.iter().map(Vec::len).sum();
    shared
        .log()
        .update(number, |entry| entry.prompt_tokens = prompt_tokens);

    let held = {
        let stats = shared.stats();
        stats.running + stats.waiting
    };
    let delay = shared.scaled(shared.options.profile.front_end.delay(held));
    let (sender, tokens) = mpsc::unbounded_channel();
    let mut guard = Guard::new(shared);
    tokio::time::sleep_until(arrived + delay).await;
    let choices = requests(&body, &model);
    let choice_count = choices.len();
    for (choice, request) in choices.into_iter().enumerate() {
        let ticket = shared.next_ticket();
        let tokens = sender.clone();
        let adapter = model.adapter.clone();
        let submission = Submission {
            ticket,
            request,
            choice,
            adapter,
            logged: number,
            arrived,
            tokens,
        };
        shared
            .engine
            .send(Command::Submit(submission))
            .map_err(|_| Cut)?;
        guard.tickets.push(ticket);
    }
    let events = Events {
        tokens,
        guard,
        writer: writer(shared, shape, &model, request_id(&head.headers, number)),
        usage: UsageCount::new(prompt_tokens, choice_count, body.n),
        include_usage: body.include_usage,
        continuous_usage: body.include_usage && body.continuous_usage,
    };
    if body.stream {
        Ok(stream(events))
    } else {
        whole(events, choice_count, &head.headers).await
    }
}

/// What the engine is asked for: every prompt as often as there are answers wanted.
fn requests(body: &Body, model: &Model) -> Vec<engine::Request> {
    let root = body.root(model.adapter.as_deref());
    let prompts = body
        .prompts
        .iter()
        .flat_map(|it| (0..body.n).map(move |copy| (it, copy)));
    let request = |(prompt, copy): (&Vec<u32>, usize)| engine::Request {
        prompt: prompt.clone(),
        // The copies of one prompt answer differently.
        output: answer(prompt, root ^ copy as u64, body.output_len),
        root,
        priority: body.priority,
        ..engine::Request::default()
    };
    prompts.map(request).collect()
}

fn writer(shared: &Shared, shape: Shape, model: &Model, id: String) -> Writer {
    let created = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let writer = Writer::new(shape, &id, &model.name, created);
    if shared.options.prompt_tokens_details {
        writer
    } else {
        writer.without_details()
    }
}

/// What the answer calls the model, and the adapter if it is one.
struct Model {
    name: String,
    adapter: Option<String>,
}

fn model(shared: &Shared, body: &Body) -> Result<Model, ApiError> {
    let options = &shared.options;
    let base = Model {
        name: options.model.clone(),
        adapter: None,
    };
    let Some(asked) = &body.model else {
        return Ok(base);
    };
    if *asked == options.model || options.aliases.contains(asked) {
        return Ok(base);
    }
    if options.strict_models && !options.adapters.contains(asked) {
        let served = std::iter::once(&options.model).chain(&options.aliases);
        let served: Vec<_> = served.chain(&options.adapters).cloned().collect();
        return Err(ApiError::model(asked, &served));
    }
    Ok(Model {
        name: asked.clone(),
        adapter: Some(asked.clone()),
    })
}

/// Refuses prompts that fill the context, and shortens answers that would.
fn fit(shared: &Shared, mut body: Body) -> Result<Body, ApiError> {
    let tokens_max = shared.options.engine().max_model_len;
    let longest = body.prompts.iter().map(Vec::len).max().unwrap_or_default();
    if longest >= tokens_max {
        return Err(ApiError::context(tokens_max, longest));
    }
    body.output_len = body.output_len.min(tokens_max - longest);
    Ok(body)
}

/// A body that says it is something else than JSON is refused.
fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(kind) = headers.get(CONTENT_TYPE) else {
        return Ok(());
    };
    let kind = kind.to_str().unwrap_or_default().to_ascii_lowercase();
    if kind
        .split(';')
        .next()
        .is_some_and(|kind| kind.trim() == "application/json")
    {
        return Ok(());
    }
    Err(ApiError::validation(
        "Unsupported Media Type: Only 'application/json' is allowed",
    ))
}

/// The client's id, or one made from the request's number.
fn request_id(headers: &HeaderMap, number: u64) -> String {
    let given = headers.get("x-request-id").and_then(|id| id.to_str().ok());
    given.map_or_else(|| format!("{number:032x}"), str::to_owned)
}

fn stream(events: Events) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::Events(Box::new(events)));
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream; charset=utf-8"),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Waits for all tokens and answers with one object.
async fn whole(mut events: Events, choices: usize, headers: &HeaderMap) -> Answer {
    let mut tokens = vec![Vec::new(); choices];
    while !events.usage.is_complete() {
        // Without an engine there is no more answer than a closed connection.
        let delta = events.tokens.recv().await.ok_or(Cut)?;
        events.usage.add(&delta);
        if let Some(choice) = tokens.get_mut(delta.choice) {
            choice.push(delta.token);
        }
    }
    let text = events.writer.whole(&tokens, events.usage.usage());
    let mut response = Response::new(AnswerBody::Full(Some(Bytes::from(text))));
    *response.status_mut() = StatusCode::OK;
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    if let Some(report) = load_report(&events.guard.shared, headers) {
        response
            .headers_mut()
            .insert("endpoint-load-metrics", report);
    }
    Ok(response)
}

/// The load of the engine, for a client that asks for it with every answer.
fn load_report(shared: &Shared, headers: &HeaderMap) -> Option<HeaderValue> {
    let format = headers.get("endpoint-load-metrics-format")?.to_str().ok()?;
    let stats = shared.stats();
    let (usage, waiting) = (stats.kv_usage, stats.waiting as f64);
    let report = match format {
        "TEXT" => format!(
            "TEXT named_metrics.kv_cache_usage_perc={usage:?}, \
             named_metrics.num_requests_waiting={waiting:?}"
        ),
        "JSON" => format!(
            "JSON {{\"named_metrics\": {{\"kv_cache_usage_perc\": {usage:?}, \
             \"num_requests_waiting\": {waiting:?}}}}}"
        ),
        _ => return None,
    };
    HeaderValue::from_str(&report).ok()
}
