//! A real browser, driven over its own protocol.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

const LIMIT: Duration = Duration::from_mins(2);

/// One page of a browser of its own.
pub struct Page {
    socket: WebSocketStream<TcpStream>,
    session: String,
    next: u64,
    _browser: Child,
    _profile: TempDir,
}

impl Page {
    /// Starts a browser with a window of this size.
    pub async fn open(program: &Path, (width, height): (u32, u32)) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Command::new(program)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0"])
            .arg(format!("--window-size={width},{height}"))
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(browser.stderr.take().unwrap()).lines();
        let address = loop {
            let line = lines.next_line().await.unwrap().expect("the browser ended before it was ready");
            if let Some(address) = line.strip_prefix("DevTools listening on ") {
                break address.to_owned();
            }
        };
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let host = address.trim_start_matches("ws://").split('/').next().unwrap().to_owned();
        let stream = TcpStream::connect(&host).await.unwrap();
        let (socket, _) = tokio_tungstenite::client_async(&address, stream).await.unwrap();
        let mut page = Self { socket, session: String::new(), next: 0, _browser: browser, _profile: profile };
        let target = page.call("Target.createTarget", json!({ "url": "about:blank" })).await;
        let attached =
            page.call("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true })).await;
        page.session = attached["sessionId"].as_str().unwrap().to_owned();
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        page.call("Emulation.setDeviceMetricsOverride", size).await;
        page
    }

    /// Calls a method and waits for its result.
    pub async fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.socket.send(Message::text(message.to_string())).await.unwrap();
        let answer = async {
            loop {
                let Some(Ok(message)) = self.socket.next().await else { panic!("the browser is gone, in {method}") };
                let Message::Text(text) = message else { continue };
                let answer: Value = serde_json::from_str(&text).unwrap();
                if answer["id"] == id {
                    assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                    return answer["result"].clone();
                }
            }
        };
        tokio::time::timeout(LIMIT, answer).await.unwrap_or_else(|_| panic!("the browser does not answer {method}"))
    }

    pub async fn visit(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url })).await;
    }

    /// The value of an expression.
    pub async fn eval(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", parameters).await;
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {:#}", answer["exceptionDetails"]);
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub async fn until(&mut self, expression: &str) {
        let begun = std::time::Instant::now();
        // What is asked about may not be there yet.
        let question = format!("(() => {{ try {{ return Boolean({expression}) }} catch {{ return false }} }})()");
        while self.eval(&question).await != json!(true) {
            if begun.elapsed() > LIMIT {
                let text = self.eval("document.body ? document.body.innerText : ''").await;
                panic!("never true: {expression}\n{}", text.as_str().unwrap_or_default());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn text(&mut self) -> String {
        self.eval("document.body.innerText").await.as_str().unwrap_or_default().to_owned()
    }

    /// Presses a key that has a name.
    pub async fn press(&mut self, key: &str) {
        let code = if key.len() == 1 { format!("Key{}", key.to_uppercase()) } else { key.to_owned() };
        let mut down = json!({ "type": "keyDown", "key": key, "code": code });
        if key == "Enter" {
            down["text"] = json!("\r");
            down["windowsVirtualKeyCode"] = json!(13);
        } else if key.len() == 1 {
            down["text"] = json!(key);
        }
        self.call("Input.dispatchKeyEvent", down).await;
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key, "code": code })).await;
    }

    /// What a screen reader gets: the role and the name of every visible node.
    pub async fn announced(&mut self) -> Vec<(String, String)> {
        let tree = self.call("Accessibility.getFullAXTree", json!({})).await;
        let nodes = tree["nodes"].as_array().unwrap().iter().filter(|node| node["ignored"] != json!(true));
        let text = |value: &Value| value["value"].as_str().unwrap_or_default().to_owned();
        nodes.map(|node| (text(&node["role"]), text(&node["name"]))).collect()
    }

    /// Light or dark, as the system would have it.
    pub async fn scheme(&mut self, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", features).await;
    }

    /// Keeps a picture where `PLIMSOLL_SCREENSHOTS` says, if it does.
    pub async fn picture(&mut self, name: &str) {
        let Some(directory) = std::env::var_os("PLIMSOLL_SCREENSHOTS") else { return };
        let taken = self.call("Page.captureScreenshot", json!({ "format": "png" })).await;
        let bytes = base64::engine::general_purpose::STANDARD.decode(taken["data"].as_str().unwrap()).unwrap();
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(Path::new(&directory).join(format!("{name}.png")), bytes).unwrap();
    }
}
